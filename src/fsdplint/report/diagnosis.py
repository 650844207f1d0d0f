"""What an error belongs to, for people and, as JSON, for other programs.

The JSON document is an object: ``version`` (1), ``rules`` (a list of ``rule``, ``code``,
``summary``, ``message``: what the error has of the rule's page, ``finds`` and ``harm``: the page in
short, the rule that more speaks for leading), ``causes`` (``message``, ``cause`` and ``cure`` of
errors that no rule can see in the code), ``findings`` of these rules in the given files, as
`check` has them, ``failures`` (``path`` and ``reason`` of what could not be checked) and ``lines``:
a list of ``path`` and ``line`` of the given files that the error names.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from fsdplint.knowledge.errors import KnownError
from fsdplint.outcome import Outcome
from fsdplint.pages import in_short, page, unmarked
from fsdplint.pages.diagnosis import Frame, Match
from fsdplint.process.terminal import printable
from fsdplint.report.json import failures_as_json, finding_as_json
from fsdplint.report.places import relative, shown
from fsdplint.report.style import Style
from fsdplint.report.text import described

NOTHING = "No rule knows this error."


def diagnosis_as_text(
    matches: Sequence[Match],
    errors: Sequence[KnownError],
    outcome: Outcome,
    lines: Sequence[Frame],
    style: Style,
    width: int,
) -> str:
    """Return each rule with its page in short, then what is suspect in the given files."""
    causes = ["\n".join(_cause(error, width)) for error in errors]
    if not matches:
        last = "\n".join([*(() if causes else (NOTHING,)), *_named(outcome, lines)])
        return "\n\n".join(filter(None, [*causes, last])) + "\n"
    parts = ["\n".join(_rule(match, style, width)) for match in matches] + causes
    parts += ["\n".join(described(outcome, f, style)) for f in outcome.findings]
    if not outcome.findings and outcome.checked:
        parts.append("\n".join(["None of this is found there.", *_named(outcome, lines)]))
    return "\n\n".join(parts) + "\n"


def diagnosis_as_json(
    matches: Sequence[Match],
    errors: Sequence[KnownError],
    outcome: Outcome,
    lines: Sequence[Frame],
) -> str:
    """Return the document that the module describes."""
    document = {
        "version": 1,
        "rules": [_described(match) for match in matches],
        "causes": [asdict(error) for error in errors],
        "findings": [finding_as_json(outcome, finding) for finding in outcome.findings],
        "failures": failures_as_json(outcome),
        "lines": [
            {"path": relative(outcome, frame.path.as_posix()), "line": frame.line}
            for frame in lines
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def _rule(match: Match, style: Style, width: int) -> Iterator[str]:
    code = style(match.rule.code, match.rule.severity.value)
    yield f"{code} {match.rule.name}: {match.rule.summary}"
    yield from _wrapped(match.message, width, "  error: ")
    for paragraph in map(unmarked, in_short(page(match.rule.name))):
        yield from _wrapped(paragraph, width, "  ")
    yield f"  page: fsdplint explain {match.rule.name}"


def _cause(error: KnownError, width: int) -> Iterator[str]:
    yield from _wrapped(error.message, width, "error: ")
    for sentence in (error.cause, error.cure):
        yield from _wrapped(unmarked(sentence), width, "  ")


def _wrapped(text: str, width: int, first: str) -> list[str]:
    return textwrap.wrap(
        printable(" ".join(text.split())),
        width,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _named(outcome: Outcome, lines: Sequence[Frame]) -> Iterator[str]:
    if lines:
        yield "The error names these lines:"
    for frame in lines:
        path = frame.path.as_posix()
        source = outcome.sources.get(path)
        known = source is not None and frame.line <= source.text.count("\n") + 1
        code = source.line(frame.line).strip() if source and known else ""
        yield f"  {shown(outcome, path)}:{frame.line}: {printable(code)}".rstrip(": ")


def _described(match: Match) -> dict[str, str]:
    finds, harm = in_short(page(match.rule.name))
    return {
        "rule": match.rule.name,
        "code": match.rule.code,
        "summary": match.rule.summary,
        "message": match.message,
        "finds": finds,
        "harm": harm,
    }
