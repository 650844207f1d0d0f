"""Comments that suppress findings: `# fsdplint: ignore[name] -- reason`, `ignore-file`, `# noqa`.

The release that ends it may follow the names: `until torch>=2.9`.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fsdplint.files.lexing import LogicalLine, logical_lines
from fsdplint.finding import Edit, Finding, Fix, Safety, Span
from fsdplint.knowledge.torch_range import EVERY_RELEASE, Release, TorchRange
from fsdplint.rules import RULES
from fsdplint.settings.rule_selection import UnknownRuleError, find
from fsdplint.suggest import suggest

if TYPE_CHECKING:
    from fsdplint.files.file import SourceFile
    from fsdplint.rule import Rule

UNUSED = "unused-suppression"
# Silence about these would make a file that was not looked at seem clean.
NEVER_SUPPRESSED = frozenset({"invalid-syntax"})

_MENTION = re.compile(r"fsdplint:|noqa", re.IGNORECASE)
_OURS = "fsdplint:"
_NOQA_OF_OURS = re.compile(r"noqa:[^\r\n#]*\bFSD[0-9]", re.IGNORECASE)
_REASON = r"(?:[ \t]*--(?P<reason>(?:(?!\#[ \t]*(?:[^\W\d]|-\*-)).)*))?"
_OWN = re.compile(
    rf"""\#[ \t]*fsdplint:[ \t]*(?P<verb>[\w-]*)[ \t]*
        (?:\[(?P<rules>[^\]#]*)\])?
        (?:[ \t]*until\b[ \t]*(?P<until>(?:(?!--)[^#\r\n])*))?
        {_REASON}""",
    re.VERBOSE,
)
# What another tool reads, where it begins a comment: `type: ignore`, `noqa`, `-*- coding`.
_DIRECTIVE = re.compile(r"[\w-]+[ \t]*:|-\*-|noqa|nosec|pragma|region|endregion", re.IGNORECASE)
_NOQA = re.compile(
    r"\#[ \t]*noqa(?::[ \t]?(?P<codes>[A-Z]+[0-9]+(?:[, \t]+[A-Z]+[0-9]+)*))?(?![\w-])",
    re.IGNORECASE,
)
_CODE = re.compile(r"[A-Z]+[0-9]+", re.IGNORECASE)
_OUR_CODE = re.compile(r"FSD[0-9]+", re.IGNORECASE)
_UNTIL = re.compile(r"torch[ \t]*>=[ \t]*(\d+)(?:\.(\d+))?(?:\.(\d+))?")
_VERBS = ("ignore", "ignore-file")


@dataclass(slots=True)
class Suppression:
    """One directive of a comment.

    Attributes:
        span: the directive with its reason.
        comment: the whole comment that it is in.
        scope: the offsets that a finding starts between for it to be silenced.
        rules: the words of the directive, each with the names of the rules that it means.
        whole: whether it is for the whole file.
        used: the names of the rules that it suppressed.
        problem: why it is invalid, "" if it is valid.
        until: the release from which it is not needed any more.
    """

    span: tuple[int, int]
    comment: tuple[int, int]
    scope: tuple[int, int]
    rules: dict[str, frozenset[str]]
    whole: bool = False
    used: set[str] = field(default_factory=set)
    problem: str = ""
    until: Release | None = None

    def silences(self, finding: Finding) -> bool:
        """Return whether this suppresses ``finding``; if so, record the use."""
        named = any(finding.rule in names for names in self.rules.values())
        named = named and finding.rule not in NEVER_SUPPRESSED
        if named and self.scope[0] <= finding.span.start < self.scope[1]:
            self.used.add(finding.rule)
            return True
        return False


def suppress(
    source: SourceFile,
    findings: Iterable[Finding],
    enabled: frozenset[str],
    torch: TorchRange = EVERY_RELEASE,
    lines: Callable[[], Iterable[LogicalLine]] | None = None,
) -> list[Finding]:
    """Return the ``findings`` without suppressed ones, and findings on unused comments.

    Args:
        findings: all of this file.
        enabled: the names of the rules that ran; a comment for another one may be of use.
        torch: the releases of PyTorch that the file is to run on; a comment that was until one
            that all of these have reached silences nothing.
        lines: returns the logical lines of a file that is not Python.
    """
    findings = list(findings)
    if not findings and not has_own_comment(source.text):
        return []  # most files
    every = list(_suppressions(source.text, lines))
    expired = [s for s in every if s.until is not None and torch.is_from(s.until)]
    comments = _Comments(s for s in every if s not in expired)
    kept = [finding for finding in findings if not comments.silence(finding)]
    if UNUSED in enabled:
        rule = next(rule for rule in RULES if rule.name == UNUSED)
        idle = [
            found
            for suppression in comments.all
            for found in _unused(source, suppression, rule, enabled)
        ]
        idle += [_expired(source, suppression, rule) for suppression in expired]
        kept += [finding for finding in idle if not comments.silence(finding)]
    return kept


def has_own_comment(text: str) -> bool:
    """Return whether ``text`` may have a comment that names our rules."""
    # Few files have the letters, so that few are searched.
    return _OURS in text or ("FSD" in text and _NOQA_OF_OURS.search(text) is not None)


def directive(rules: Sequence[str], reason: str) -> str:
    """Return the comment that suppresses ``rules`` on the statement that it follows."""
    return f"# fsdplint: ignore[{', '.join(rules)}] -- {reason}"


def has_directive(text: str, comment: tuple[int, int]) -> bool:
    """Return whether the comment between the offsets has a directive of ours."""
    return _OWN.search(text, *comment) is not None


class _Comments:
    """Suppressions, found by where they apply: scopes are the same or do not overlap."""

    def __init__(self, suppressions: Iterable[Suppression]) -> None:
        self.all = list(suppressions)
        self.whole = [s for s in self.all if s.whole]
        self.by_scope: dict[tuple[int, int], list[Suppression]] = {}
        for suppression in self.all:
            if not suppression.whole:
                self.by_scope.setdefault(suppression.scope, []).append(suppression)
        self.scopes = sorted(self.by_scope)

    def silence(self, finding: Finding) -> bool:
        index = bisect_right(self.scopes, (finding.span.start, sys.maxsize)) - 1
        near = self.by_scope[self.scopes[index]] if index >= 0 else []
        # Every one that means it counts as used, so all are asked.
        return bool([s for s in (*self.whole, *near) if s.silences(finding)])


def _suppressions(
    text: str, lines_of: Callable[[], Iterable[LogicalLine]] | None
) -> Iterator[Suppression]:
    """Yield the directives of ``text`` in order.

    Our comment on a line of its own applies to the next statement, so lines are read backwards.
    """
    if not _MENTION.search(text):
        return
    lines = list(lines_of() if lines_of else logical_lines(text))
    following: LogicalLine | None = None
    found: list[Suppression] = []
    for line in reversed(lines):
        following = line if line.code else following
        scope = (following.start, following.end) if following else (0, 0)
        for comment in reversed(line.comments):
            trailing = (line.start, line.end)
            directives = [
                *_of_comment(text, comment, scope),
                *_noqa(text, comment, trailing),
            ]
            found += reversed(directives)
    yield from reversed(found)


def _of_comment(
    text: str, comment: tuple[int, int], scope: tuple[int, int]
) -> Iterator[Suppression]:
    """Yield our directives in a comment, which apply to ``scope`` or to the whole file."""
    for match in _OWN.finditer(text, *comment):
        verb, listed = match["verb"], match["rules"]
        whole = verb == "ignore-file"
        lines = (0, len(text) + 1) if whole else scope
        span = match.start(), match.start() + len(match[0].rstrip(" \t"))
        suppression = Suppression(span, comment, lines, {}, whole=whole)
        if verb not in _VERBS:
            suppression.problem = f"unknown directive {verb!r}{suggest(verb, _VERBS)}"
        elif not (listed or "").strip():
            suppression.problem = f"`{verb}` needs a rule, for example `{verb}[{RULES[-1].name}]`"
        else:
            _read_rules(suppression, listed)
            _read_until(suppression, match["until"])
        yield suppression


def _read_rules(suppression: Suppression, listed: str) -> None:
    for word in filter(None, re.split(r"[,\s]+", listed)):
        try:
            suppression.rules[word] = frozenset({find(word)})
        except UnknownRuleError as error:
            suppression.problem = str(error)


def _read_until(suppression: Suppression, condition: str | None) -> None:
    if condition is None:
        return
    match = _UNTIL.fullmatch(condition.strip())
    if match is None:
        suppression.problem = "`until` needs a release, for example `until torch>=2.9`"
    else:
        suppression.until = (int(match[1]), int(match[2] or 0), int(match[3] or 0))


def _noqa(text: str, comment: tuple[int, int], scope: tuple[int, int]) -> Iterator[Suppression]:
    for match in _NOQA.finditer(text, *comment):
        words = _CODE.findall(match["codes"] or "") or [""]
        rules = {word: _with_prefix(word.upper()) for word in words}
        suppression = Suppression(match.span(), comment, scope, rules)
        for word in words:
            if not rules[word] and _OUR_CODE.fullmatch(word):
                _read_rules(suppression, word)  # which says what is wrong with it
        yield suppression


def _with_prefix(prefix: str) -> frozenset[str]:
    return frozenset(rule.name for rule in RULES if rule.code.startswith(prefix))


def _unused(
    source: SourceFile, suppression: Suppression, rule: Rule, enabled: frozenset[str]
) -> Iterator[Finding]:
    """Yield a finding for a directive that is invalid, or has rules without findings."""
    span = Span(source.path, *suppression.span)
    if suppression.problem:
        yield Finding(
            rule.name,
            rule.code,
            rule.severity,
            f"invalid suppression comment: {suppression.problem}",
            span,
            fix_declined="the intended suppression is unclear; correct the comment by hand",
        )
        return
    # Without this rule: a bare `noqa`, which means every rule and is for other tools, too, stays.
    idle = enabled - suppression.used - {UNUSED}
    words = [word for word, names in suppression.rules.items() if names and names <= idle]
    if words:
        names = ", ".join(f"`{word}`" for word in words)
        where = "in this file" if suppression.whole else "here"
        message = (
            f"unused suppression of {names}: there is no finding {where}, and the comment would "
            "hide a later one"
        )
        fix = _removal(source, suppression, words)
        yield Finding(rule.name, rule.code, rule.severity, message, span, fix=fix)


def _expired(source: SourceFile, suppression: Suppression, rule: Rule) -> Finding:
    assert suppression.until is not None
    major, minor, patch = suppression.until
    release = f"{major}.{minor}.{patch}" if patch else f"{major}.{minor}"
    return Finding(
        rule.name,
        rule.code,
        rule.severity,
        f"expired suppression: it suppresses nothing on torch {release} and later",
        Span(source.path, *suppression.span),
        fix=_removal(source, suppression, list(suppression.rules)),
    )


def _removal(source: SourceFile, suppression: Suppression, words: Sequence[str]) -> Fix:
    kept = [word for word in suppression.rules if word not in words]
    if kept:
        edits = tuple(_without(source, suppression, kept))
        return Fix("remove the unused rule names", Safety.SAFE, edits)
    # A `noqa` ends with its last code elsewhere: what follows may be for the codes that stay.
    reason = re.compile(_REASON).match(source.text, suppression.span[1], suppression.comment[1])
    assert reason is not None
    whole = suppression.span[0], reason.end()
    start, end = _with_blanks(source.text, whole, suppression.comment)
    rest = source.text[end : suppression.comment[1]]
    # What follows in words begins the comment then, and other tools read the beginning.
    begins = end > whole[1] and _DIRECTIVE.match(rest)
    safety = Safety.UNSAFE if begins and not rest.startswith("#") else Safety.SAFE
    return Fix("remove the comment", safety, (Edit(Span(source.path, start, end), ""),))


def _without(source: SourceFile, suppression: Suppression, kept: list[str]) -> Iterator[Edit]:
    """Yield the edit after which the directive has only the words ``kept``."""
    text = source.text
    noqa = _NOQA.match(text, *suppression.span)
    if noqa is None:
        start = text.index("[", suppression.span[0]) + 1
        yield Edit(Span(source.path, start, text.index("]", start)), ", ".join(kept))
        return
    start, end = noqa.span("codes")
    codes = list(_CODE.finditer(text, start, end))
    left = [index for index, code in enumerate(codes) if code[0] in kept]
    # Each keeps what separates it from the one before it, as other tools' codes are not ours.
    rest = [text[codes[index - 1].end() : codes[index].end()] for index in left[1:]]
    yield Edit(Span(source.path, start, end), "".join([codes[left[0]][0], *rest]))


def _with_blanks(
    text: str, directive: tuple[int, int], comment: tuple[int, int]
) -> tuple[int, int]:
    """Return the range of ``directive`` with the blanks, and the line, that it alone needs."""
    start, end = directive
    rest = text[end : comment[1]]
    words = rest.lstrip()
    if words and not words.startswith("#"):
        blanks = re.compile(r"#[ \t]*").match(text, start)
        assert blanks is not None
        return blanks.end(), end + len(rest) - len(words)  # it stays a comment
    if words and start == comment[0]:
        return start, end + len(rest) - len(words)
    before = text[:start].rstrip(" \t\f")
    alone = not before or before[-1] in "\r\n"
    if not alone or words:
        return len(before), end
    newline = re.compile(r"\r\n|\r|\n|").match(text, end)
    return len(before), newline.end() if newline else end
