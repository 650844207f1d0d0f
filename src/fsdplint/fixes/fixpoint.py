"""Apply fixes pass by pass, and roll back those that fail: nothing is read or written."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fsdplint.files.discover import is_config, is_script
from fsdplint.files.invalid import InvalidSyntax, TooDemanding
from fsdplint.files.lexing import NEWLINE
from fsdplint.finding import Edit, Finding, Safety
from fsdplint.fixes.edit_check import intact
from fsdplint.fixes.edits import apply, select

Lint = Callable[[Mapping[str, str]], Sequence[Finding]]

PASSES = 10
# How often a fix may lay bare a fault of another rule, which is then fixed with it.
_FOLLOWED = 3

_Identity = tuple[str, str, str]
# Texts by path, and the findings in them.
_Judged = tuple[Mapping[str, str], Sequence[Finding]]


class RefusedError(Exception):
    """A result that no fix may have; the message says why in a few words."""


@dataclass(frozen=True, slots=True)
class Discarded:
    """A fix that was tried and rolled back, with the reason.

    Attributes:
        after: how many fixes had been applied by then.
    """

    finding: Finding
    reason: str
    after: int = 0


@dataclass(frozen=True, slots=True)
class Fixed:
    """The result of fixing a set of files.

    Attributes:
        texts: the new text of each file that has changed.
        findings: what is left, by places in the new texts.
        applied: the findings that are fixed, as they stood when they were.
        discarded: fixes that would have broken something; the files do not have them.
        converged: False if fixes were left after the last pass.
        refused: those of ``findings`` whose fix is discarded, with the reason.
    """

    texts: Mapping[str, str]
    findings: tuple[Finding, ...]
    applied: tuple[Finding, ...]
    discarded: tuple[Discarded, ...]
    converged: bool
    refused: Mapping[Finding, str] = field(default_factory=dict)


def fix_files(texts: Mapping[str, str], lint: Lint, *, unsafe: bool = False) -> Fixed:
    """Fix findings until none is left that has a fix, in ten passes at most.

    Each pass applies fixes that do not touch each other and keeps them only if every file still
    parses, code that no edit touches is what it was, each of their findings is gone, no file has a
    finding more, and no line that was there another one. Of a pass that fails the first half is
    tried in its place, until a single fix is known to be at fault. Once others are applied it may
    hold, and is tried again.

    Args:
        texts: decoded text by absolute posix path, as in ``Finding.span``, of each file that may
            be changed.
        lint: the findings for all of ``texts``, given again in full with changes; other files
            of the program are its own concern. Called once, and once or more for each pass. It
            raises ``RefusedError`` where the texts cannot be judged or written.
        unsafe: apply unsafe fixes too.
    """
    run = _Run(dict(texts), lint, tuple(lint(texts)))
    allowed = (Safety.SAFE, Safety.UNSAFE) if unsafe else (Safety.SAFE,)
    for _ in range(PASSES):
        if not run.step(allowed):
            break
    changed = {path: text for path, text in run.texts.items() if text != texts[path]}
    left = run.selected(allowed)
    return Fixed(
        changed,
        run.findings,
        tuple(run.applied),
        tuple(run.discarded.values()),
        not left,
        run.refused(),
    )


@dataclass(slots=True)
class _Run:
    texts: dict[str, str]
    lint: Lint
    findings: tuple[Finding, ...]
    applied: list[Finding] = field(default_factory=list)
    discarded: dict[_Identity, Discarded] = field(default_factory=dict)

    def step(self, allowed: Sequence[Safety]) -> bool:
        """Run one pass; return False if nothing could be applied."""
        chosen = self.selected(allowed)
        while chosen:
            fault = self._apply(chosen, allowed)
            if fault is None:
                return True
            if len(chosen) == 1:
                discarded = Discarded(chosen[0], fault, len(self.applied))
                self.discarded[_identity(chosen[0], self.texts)] = discarded
                chosen = self.selected(allowed)
            else:
                chosen = chosen[: len(chosen) // 2]
        return False

    def selected(self, allowed: Sequence[Safety]) -> list[Finding]:
        """Return findings to fix; those whose fix was rolled back come last, once for each text."""
        fixable = [f for f in self.findings if f.fix is not None and f.fix.safety in allowed]
        before = [self.discarded.get(_identity(finding, self.texts)) for finding in fixable]
        known = list(zip(fixable, before, strict=True))
        new = select(finding for finding, taken in known if taken is None)
        return new or select(f for f, taken in known if taken and taken.after < len(self.applied))

    def refused(self) -> dict[Finding, str]:
        known = ((f, self.discarded.get(_identity(f, self.texts))) for f in self.findings if f.fix)
        return {finding: taken.reason for finding, taken in known if taken is not None}

    def _apply(self, chosen: Sequence[Finding], allowed: Sequence[Safety]) -> str | None:
        """Keep the fixes of ``chosen`` and return None, or return what is wrong with them.

        A fix may lay bare another fault, which its own fix has to cure.
        """
        texts, findings, fixed = self.texts, self.findings, list(chosen)
        fixing = list(chosen)
        for _ in range(_FOLLOWED):
            try:
                texts = _edited(texts, fixing)
                findings = tuple(self.lint(texts))
            except RefusedError as error:
                return str(error)
            fault, fixing = _fault(self.findings, fixed, findings), []
            fault = fault or _exchanged((self.texts, self.findings), fixed, (texts, findings))
            if fault is None:
                for finding in chosen:
                    self.discarded.pop(_identity(finding, self.texts), None)
                self.texts, self.findings = texts, findings
                self.applied += fixed
                return None
            new = _surplus(self.findings, chosen, findings)
            fixing = select(f for f in new if f.fix is not None and f.fix.safety in allowed)
            if not fixing or any(_place(f) in map(_place, fixed) for f in fixing):
                break
            fixed += fixing
        return fault


def _edited(texts: dict[str, str], fixing: Sequence[Finding]) -> dict[str, str]:
    """Return the texts with the fixes of ``fixing``.

    Raises:
        RefusedError: the fixes conflict, or the result is not Python or changes other code.
    """
    edits: dict[str, list[Edit]] = {}
    for finding in fixing:
        for edit in finding.fix.edits if finding.fix else ():
            edits.setdefault(edit.span.path, []).append(edit)
    if not edits.keys() <= texts.keys():
        raise RefusedError("it would edit a file that is not being fixed")
    try:
        new = {path: apply(texts[path], each) for path, each in edits.items()}
    except ValueError as error:
        raise RefusedError(f"its edits conflict: {error}") from error
    for path, text in new.items():
        if is_script(path):
            _check_script(path, texts[path], text, edits[path])
        elif is_config(path):
            _check_config(path, texts[path], text, edits[path])
        else:
            _check(texts[path], text, edits[path])
    return texts | new


def _check(old: str, new: str, edits: Sequence[Edit]) -> None:
    try:
        same = intact(old, new, edits)
    except (InvalidSyntax, TooDemanding):
        raise RefusedError("the fixed code is not valid Python") from None
    if not _compiles(new) and _compiles(old):
        raise RefusedError("the fixed code is not valid Python")
    if not same:
        raise RefusedError("it would change other code, too")


def _check_config(path: str, old: str, new: str, edits: Sequence[Edit]) -> None:
    from fsdplint.configs.edits import intact as same_settings

    try:
        same = same_settings(old, new, path, edits)
    except InvalidSyntax:
        raise RefusedError("the fixed file cannot be parsed") from None
    if not same:
        raise RefusedError("it would change other settings, too")


def _check_script(path: str, old: str, new: str, edits: Sequence[Edit]) -> None:
    """Expect that the shell commands of a file that no edit touches are the same."""
    from fsdplint.configs.launch_lines import shell_of
    from fsdplint.configs.shell import NotUnderstoodError

    try:
        before, after = shell_of(path, old), shell_of(path, new)
    except NotUnderstoodError:
        raise RefusedError("the fixed script cannot be parsed") from None
    places = [(command.start, command.end) for command in before.commands]
    same = any(
        len(expected) == len(after.commands)
        and all(
            old[start:end] == new[now.start : now.end]
            for (start, end), now in zip(expected, after.commands, strict=True)
            if not any(e.span.start <= end and start <= e.span.end for e in edits)
        )
        for expected in (places, _joined(old, places, edits))
    )
    if not same:
        raise RefusedError("it would change other commands, too")


def _joined(
    text: str, places: Sequence[tuple[int, int]], edits: Sequence[Edit]
) -> Sequence[tuple[int, int]]:
    """Return the places of commands, if an edit of the blanks between two makes them one."""
    spans = [edit.span for edit in edits if not text[edit.span.start : edit.span.end].strip()]
    joined: list[tuple[int, int]] = []
    for start, end in places:
        if joined and any(joined[-1][1] <= span.end <= start for span in spans):
            joined[-1] = joined[-1][0], end
        else:
            joined.append((start, end))
    return joined


def _identity(finding: Finding, texts: Mapping[str, str]) -> _Identity:
    """Return what identifies a finding while other places of its file change."""
    span, text = finding.span, texts.get(finding.span.path, "")
    above, below = text[: span.start], text[span.start :]
    line = NEWLINE.split(above)[-1] + NEWLINE.split(below, maxsplit=1)[0]
    return finding.rule, span.path, line


def _fault(
    before: Sequence[Finding], fixed: Sequence[Finding], after: Sequence[Finding]
) -> str | None:
    """Compare by rule and file, since places and messages change as statements move."""
    for finding in _surplus(before, fixed, after):
        rule, path = _place(finding)
        own = any(_place(each) == (rule, path) for each in fixed)
        return (
            f"`{rule}` is still reported" if own else f"it causes a finding of `{rule}` in {path}"
        )
    return None


def _exchanged(before: _Judged, fixed: Sequence[Finding], after: _Judged) -> str | None:
    """Return the finding that fixes cause on a line that was there before without it.

    Another finding of the same rule that is gone would hide it where they are only counted.
    """
    texts, findings = before
    known = Counter(_on_line(each, texts) for each in findings if each not in fixed)
    lines = {path: set(map(str.strip, NEWLINE.split(text))) for path, text in texts.items()}
    for finding in after[1]:
        identity = rule, path, line = _on_line(finding, after[0])
        known[identity] -= 1
        if known[identity] < 0 and line in lines.get(path, ()):
            return f"it causes a finding of `{rule}` elsewhere in {path}"
    return None


def _on_line(finding: Finding, texts: Mapping[str, str]) -> _Identity:
    """Return the identity of a finding that a fix may indent."""
    rule, path, line = _identity(finding, texts)
    return rule, path, line.strip()


def _surplus(
    before: Sequence[Finding], fixed: Sequence[Finding], after: Sequence[Finding]
) -> list[Finding]:
    """Return the findings of each rule and file that has more of them than expected."""
    expected = _count(before)
    expected.subtract(_count([each for each in fixed if _place(each) in expected]))
    excess = _count(after)
    excess.subtract(expected)
    more = {place for place, surplus in excess.items() if surplus > 0}
    return sorted((f for f in after if _place(f) in more), key=_place)


def _place(finding: Finding) -> tuple[str, str]:
    return finding.rule, finding.span.path


def _count(findings: Sequence[Finding]) -> Counter[tuple[str, str]]:
    return Counter(map(_place, findings))


def _compiles(text: str) -> bool:
    """Return whether this Python compiles the text, which may be newer or a notebook's."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, "<fixed>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True
