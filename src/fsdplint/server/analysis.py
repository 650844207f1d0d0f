"""Run the engine for the server: texts of open buffers in, findings out.

An `Analysis` belongs to one project. Only one thread at a time may use it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from fsdplint.cache.ir_pack import Packs
from fsdplint.check import check, inspect
from fsdplint.files.decoding import SourceError, decode
from fsdplint.files.discover import searched
from fsdplint.files.file import SourceFile, from_bytes, from_text
from fsdplint.files.lexing import lines
from fsdplint.finding import Finding, Safety
from fsdplint.outcome import Changes, Outcome, merged, never
from fsdplint.settings.config import Group, groups_for, select_rules
from fsdplint.settings.rule_selection import OptIn

if TYPE_CHECKING:
    from fsdplint.engine.inspection.summary import Inspection

Buffers = Mapping[str, SourceFile]
"""What is open, by absolute path: it is read instead of the files on disk."""


@dataclass(frozen=True, slots=True)
class Choices:
    """The editor's settings for a check; they correspond to options of `check`."""

    config: str | None = None
    preview: bool = False
    pedantic: bool = False
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    extend_select: tuple[str, ...] = ()


class Analysis:
    """The analysis of the project at ``root``, which keeps what later runs can use."""

    def __init__(self, root: str) -> None:
        self.root = root
        self._packs = Packs(on_disk=False)

    def check(
        self,
        paths: Sequence[str],
        choices: Choices,
        buffers: Buffers,
        is_outdated: Callable[[], bool] = never,
    ) -> Outcome:
        """Return what `fsdplint check` finds in ``paths``, reading ``buffers`` where it can.

        Raises:
            OutdatedError: nobody waits any more.
            ConfigError: the settings cannot be used.
            UnknownRuleError: a selector selects no rule.
            BaselineError: the baseline cannot be used.
        """
        self._packs.begin_run()
        opt_in = OptIn(choices.preview, choices.pedantic)
        groups = groups_for(paths, choices.config, False, opt_in)
        return merged([self._of_group(group, choices, buffers, is_outdated) for group in groups])

    def fixed(self, path: str, choices: Choices, buffers: Buffers) -> Changes:
        """Return the changes that ``check --fix`` makes for one file."""
        from fsdplint.fixes.apply import fixed

        def recheck(overlay: Buffers) -> Outcome:
            return self.check([path], choices, {**buffers, **overlay})

        return fixed(recheck({}), recheck, unsafe=False)

    def cured(
        self, outcome: Outcome, finding: Finding, reason: str, choices: Choices, buffers: Buffers
    ) -> Changes:
        """Return the changes that end one finding of ``outcome``, checked as the command line does.

        Args:
            outcome: that of all ``buffers``.
            reason: of a comment that suppresses the finding; "" for its own fix.
        """
        from fsdplint.fixes.apply import fixed

        cure = commented(outcome, finding, reason) if reason else finding
        before = {_place(outcome, each) for each in outcome.findings}

        def curing(now: Outcome) -> list[Finding]:
            if now is outcome:
                return [cure if each is finding else _unfixed(each) for each in now.findings]
            # A fix may lay bare another fault, which its own fix cures.
            return [_unfixed(f) if _place(now, f) in before else f for f in now.findings]

        def recheck(overlay: Buffers) -> Outcome:
            return self.check(sorted(buffers), choices, {**buffers, **overlay})

        unsafe = cure.fix is not None and cure.fix.safety is Safety.UNSAFE
        return fixed(outcome, recheck, unsafe, curing)

    def inspect(self, path: str, buffers: Buffers) -> tuple[Inspection, Outcome]:
        """Return what `fsdplint inspect` shows of the script at ``path``.

        Raises:
            SourceError: it cannot be read, or is not Python.
        """
        return inspect(path, buffers)

    def _of_group(
        self, group: Group, choices: Choices, buffers: Buffers, is_outdated: Callable[[], bool]
    ) -> Outcome:
        settings = group.settings
        selectors = (choices.select, choices.ignore, choices.extend_select)
        if any(selectors):
            settings = select_rules(settings, *selectors)
        # An editor also opens files that a search of the project excludes, such as a library's.
        paths = searched(group.paths, settings.exclude, self.root)
        if not paths:
            return Outcome((), {})
        outcome = check(paths, settings, buffers, packs=self._packs, is_outdated=is_outdated)
        if settings.baseline is None:
            return outcome
        from fsdplint.suppression.baseline import load, without

        return without(outcome, load(settings.baseline))


def commented(outcome: Outcome, finding: Finding, reason: str) -> Finding:
    """Return ``finding`` with the comment that suppresses it as its fix, as `--add-ignore` does."""
    from fsdplint.suppression.add_ignore import with_comments

    return with_comments(replace(outcome, findings=(finding,)), reason)[0]


def _unfixed(finding: Finding) -> Finding:
    return replace(finding, fix=None)


def _place(outcome: Outcome, finding: Finding) -> tuple[str, str, str]:
    """Return what identifies a finding while other lines of its file change."""
    source = outcome.sources[finding.span.path]
    line, _ = source.position(finding.span.start)
    return finding.rule, finding.span.path, source.line(line)


def as_file(path: str, text: str) -> SourceFile:
    """Return a buffer as the file that it is saved to, whose encoding the text may declare."""
    head = "".join(lines(text)[:2]).encode("ascii", "ignore")
    try:
        _, encoding, _ = decode(head, path)
        source = from_bytes(text.encode(encoding), path)
    except (SourceError, UnicodeError):
        return from_text(text, path)
    return source if source.text == text else from_text(text, path)
