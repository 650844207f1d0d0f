"""From findings to changed files: the fixes of a run, applied until none is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from fsdplint.files.decoding import SourceError
from fsdplint.files.file import SourceFile
from fsdplint.finding import EarlyStop, Finding
from fsdplint.fixes.fixpoint import PASSES, Fixed, RefusedError, fix_files
from fsdplint.outcome import Changes, Outcome, Recheck
from fsdplint.process.stack import deep


def _as_found(outcome: Outcome) -> Sequence[Finding]:
    return outcome.findings


def fixed(
    outcome: Outcome,
    recheck: Recheck,
    unsafe: bool,
    curing: Callable[[Outcome], Sequence[Finding]] = _as_found,
) -> Changes:
    """Return the changes that fix the findings of ``outcome``.

    Args:
        recheck: returns the outcome with other files instead of those on disk, by path.
        unsafe: whether unsafe fixes are applied too.
        curing: an outcome's findings with the fixes to apply, if these are not their own.
    """
    run = _Run(outcome, recheck, curing)
    edited = {edit.span.path for f in curing(outcome) if f.fix for edit in f.fix.edits}
    texts = {path: outcome.sources[path].text for path in {*run.paths(), *edited}}
    result = deep(lambda: fix_files(texts, run.lint, unsafe=unsafe))
    files = tuple(
        (outcome.sources[path], run.edited(path, text))
        for path, text in sorted(result.texts.items())
    )
    return Changes(_left(run.latest(result), result), files, result.applied, tuple(_notes(result)))


def _left(outcome: Outcome, result: Fixed) -> Outcome:
    """Return ``outcome`` in which a fix that was rolled back is not offered again."""
    findings = tuple(
        replace(
            finding, fix=None, fix_declined=f"the fix was rolled back: {result.refused[finding]}"
        )
        if finding in result.refused
        else finding
        for finding in outcome.findings
    )
    return replace(outcome, findings=findings)


class _Run:
    """Recheck texts, each outcome once."""

    def __init__(
        self,
        outcome: Outcome,
        recheck: Recheck,
        curing: Callable[[Outcome], Sequence[Finding]],
    ) -> None:
        self.first = outcome
        self.recheck = recheck
        self.curing = curing
        self.outcomes: dict[tuple[tuple[str, str], ...], Outcome] = {(): outcome}

    def paths(self) -> set[str]:
        return {finding.span.path for finding in self.first.findings}

    def lint(self, texts: Mapping[str, str]) -> Sequence[Finding]:
        try:
            outcome = self.outcome(texts)
        except SourceError as error:
            raise RefusedError(error.reason) from error
        # What is not looked at has no findings, and would pass for cured.
        failed = {error.reason for error in outcome.failures}
        failed -= {error.reason for error in self.first.failures}
        failed |= {f"its analysis stops early ({stop.reason})" for stop in self.stopped(outcome)}
        if failed:
            raise RefusedError(f"the fixed code cannot be checked: {min(failed)}")
        return self.curing(outcome)

    def stopped(self, outcome: Outcome) -> set[EarlyStop]:
        """Return the early stops that did not occur before."""
        return set(outcome.partly) - set(self.first.partly)

    def outcome(self, texts: Mapping[str, str]) -> Outcome:
        changed = {p: t for p, t in texts.items() if t != self.first.sources[p].text}
        key = tuple(sorted(changed.items()))
        if key not in self.outcomes:
            files = {path: self.edited(path, text) for path, text in changed.items()}
            self.outcomes[key] = self.recheck(files)
        return self.outcomes[key]

    def edited(self, path: str, text: str) -> SourceFile:
        return self.first.sources[path].edited(text)

    def latest(self, result: Fixed) -> Outcome:
        return self.outcome(result.texts)


def _notes(result: Fixed) -> Iterator[tuple[str, str]]:
    for discarded in result.discarded:
        finding = discarded.finding
        yield (
            finding.span.path,
            f"a fix of {finding.rule} was rolled back: {discarded.reason}",
        )
    if not result.converged:
        for path in sorted(result.texts):
            yield (
                path,
                f"stopped after {PASSES} passes; run --fix again to apply the remaining fixes",
            )
