"""Comments that suppress findings: `# fsdplint: ignore[name] -- reason`, `ignore-file`, `# noqa`.

The release that ends it may follow the names: `until torch>=2.9`.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
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
_OWN = re.compile(
    r"""\#[ \t]*fsdplint:[ \t]*(?P<verb>[\w-]*)[ \t]*
        (?:\[(?P<rules>[^\]#]*)\])?
        (?:[ \t]*until\b[ \t]*(?P<until>(?:(?!--)[^#\r\n])*))?
        (?:[ \t]*--(?P<reason>(?:(?!\#[ \t]*(?:[^\W\d]|-\*-)).)*))?""",
    re.VERBOSE,
)
# What another tool reads, where it begins a comment: `type: ignore`, `noqa`, `-*- coding`.
_DIRECTIVE = re.compile(r"[\w-]+[ \t]*:|-\*-|noqa|nosec|pragma|region|endregion", re.IGNORECASE)
_NOQA = re.compile(
    r"\#[ \t]*noqa(?::[ \t]?(?P<codes>[A-Z]+[0-9]+(?:[, \t]+[A-Z]+[0-9]+)*))?(?![\w-])",
    re.IGNORECASE,
)
_UNTIL = re.compile(r"torch[ \t]*>=[ \t]*(\d+)(?:\.(\d+))?(?:\.(\d+))?")
_VERBS = ("ignore", "ignore-file")


@dataclass(slots=True)
class Suppression:
    """One directive of a comment.

    Attributes:
        span: the directive with its reason.
        comment: the whole comment that it is in.
        scope: the offsets that a finding starts between for it to be silenced.
        rules: what the directive calls each rule, and the rule's name.
        whole: whether it is for the whole file.
        own: ours and not another tool's `noqa`, so it must suppress something.
        used: the names of the rules that it suppressed.
        problem: why it is invalid, "" if it is valid.
        until: the release from which it is not needed any more.
    """

    span: tuple[int, int]
    comment: tuple[int, int]
    scope: tuple[int, int]
    rules: dict[str, str]
    own: bool
    whole: bool = False
    used: set[str] = field(default_factory=set)
    problem: str = ""
    until: Release | None = None

    def silences(self, finding: Finding) -> bool:
        """Return whether this suppresses ``finding``; if so, record the use."""
        named = finding.rule in self.rules.values() and finding.rule not in NEVER_SUPPRESSED
        if named and self.scope[0] <= finding.span.start < self.scope[1]:
            self.used.add(finding.rule)
            return True
        return False


def suppress(
    source: SourceFile,
    findings: Iterable[Finding],
    enabled: frozenset[str],
    torch: TorchRange = EVERY_RELEASE,
) -> list[Finding]:
    """Return the ``findings`` without suppressed ones, and findings on unused comments.

    Args:
        findings: all of this file.
        enabled: the names of the rules that ran; a comment for another one may be of use.
        torch: the releases of PyTorch that the file is to run on; a comment that was until one
            that all of these have reached silences nothing.
    """
    findings = list(findings)
    if not findings and not has_own_comment(source.text):
        return []  # most files; a `noqa` without a finding is no concern of ours
    every = list(_suppressions(source.text))
    expired = [s for s in every if s.until is not None and torch.is_from(s.until)]
    comments = _Comments(s for s in every if s not in expired)
    kept = [finding for finding in findings if not comments.silence(finding)]
    if UNUSED in enabled:
        rule = next(rule for rule in RULES if rule.name == UNUSED)
        idle = [
            found
            for suppression in comments.all
            if suppression.own
            for found in _unused(source, suppression, rule, enabled)
        ]
        idle += [_expired(source, suppression, rule) for suppression in expired]
        kept += [finding for finding in idle if not comments.silence(finding)]
    return kept


def has_own_comment(text: str) -> bool:
    """Return whether ``text`` may have one of our comments."""
    return _OURS in text


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


def _suppressions(text: str) -> Iterator[Suppression]:
    """Yield the directives of ``text`` in order.

    Our comment on a line of its own applies to the next statement, so lines are read backwards.
    """
    if not _MENTION.search(text):
        return
    lines = list(logical_lines(text))
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
        suppression = Suppression(span, comment, lines, {}, own=True, whole=whole)
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
            suppression.rules[word] = find(word)
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
        codes = re.split(r"[, \t]+", match["codes"].upper()) if match["codes"] else [""]
        named = {r.code: r.name for r in RULES if any(r.code.startswith(c) for c in codes)}
        yield Suppression(match.span(), comment, scope, named, own=False)


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
    idle = enabled - suppression.used - {UNUSED}
    words = [word for word, name in suppression.rules.items() if name in idle]
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
        start, end = _brackets(source.text, suppression)
        edit = Edit(Span(source.path, start, end), ", ".join(kept))
        return Fix("remove the unused rule names", Safety.SAFE, (edit,))
    start, end = _with_blanks(source.text, suppression)
    rest = source.text[end : suppression.comment[1]]
    # What follows in words begins the comment then, and other tools read the beginning.
    begins = end > suppression.span[1] and _DIRECTIVE.match(rest)
    safety = Safety.UNSAFE if begins and not rest.startswith("#") else Safety.SAFE
    return Fix("remove the comment", safety, (Edit(Span(source.path, start, end), ""),))


def _brackets(text: str, suppression: Suppression) -> tuple[int, int]:
    start = text.index("[", suppression.span[0]) + 1
    return start, text.index("]", start)


def _with_blanks(text: str, suppression: Suppression) -> tuple[int, int]:
    """Return the directive's range with the blanks, and the line, that it alone needs."""
    start, end = suppression.span
    rest = text[end : suppression.comment[1]]
    words = rest.lstrip()
    if words and not words.startswith("#"):
        return text.index("fsdplint", start), end + len(rest) - len(words)  # it stays a comment
    if words and start == suppression.comment[0]:
        return start, end + len(rest) - len(words)
    before = text[:start].rstrip(" \t\f")
    alone = not before or before[-1] in "\r\n"
    if not alone or words:
        return len(before), end
    newline = re.compile(r"\r\n|\r|\n|").match(text, end)
    return len(before), newline.end() if newline else end
