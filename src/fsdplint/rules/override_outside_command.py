"""Overrides for verl that a shell runs as a program."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from fsdplint.configs.verl_lines import Stray, VerlScript
from fsdplint.finding import Edit, Evidence, Fix, Safety, Severity, Span
from fsdplint.fixes.code import Declined
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD944",
    summary="the command for verl ends before its last override",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
)

_LINE_END = re.compile(r"(?:\r\n|\n)[ \t]*")
_EMPTY_LINES = re.compile(r"[ \t]*\\(?:\r\n|\n)((?:[ \t]*(?:\r\n|\n))+)[ \t]*")
_BLANK_ESCAPED = re.compile(r"\\[ \t]+(?=\r?\n)")


def verl_reports(script: VerlScript) -> Iterator[Report]:
    """Yield a report for each command that an override begins."""
    for stray in script.strays:
        end = stray.before.end
        yield Report(
            script.span(stray.override),
            f"the shell runs this as a program of its own, since {_cause(script, stray)}: verl "
            f"{_outcome(stray)}",
            "is not an argument of the command",
            (Evidence(Span(script.path, stray.before.words[-1].start, end), "the command ends"),),
            partial(_fix, script, stray),
        )


def _outcome(stray: Stray) -> str:
    if _escapes_blank(stray):
        return "gets the blank as an argument, and refuses to start"
    without = f"starts without `{stray.override.name}`"
    if not stray.others:
        return without
    return f"{without} and {stray.others} more {'argument' if stray.others == 1 else 'arguments'}"


def _cause(script: VerlScript, stray: Stray) -> str:
    if _escapes_blank(stray):
        return "a blank is behind the backslash before it"
    gap = script.text[stray.before.end : stray.override.start]
    if "#" in gap:
        return "a comment ends the command"
    if _EMPTY_LINES.fullmatch(gap):
        return "an empty line ends the command"
    return "a backslash is missing before it"


def _escapes_blank(stray: Stray) -> bool:
    """Return whether the command ends with a backslash and a blank, which are a word."""
    last = stray.before.words[-1]
    return last.quoted and (last.literal or "x").isspace()


def _fix(script: VerlScript, stray: Stray) -> Fix | Declined:
    start = stray.before.words[-1].start
    found = _BLANK_ESCAPED.match(script.text, start) if _escapes_blank(stray) else None
    if found is not None:
        edit = Edit(Span(script.path, start + 1, found.end()), "")
        return Fix("remove the blank behind the backslash", Safety.UNSAFE, (edit,))
    end = stray.before.end
    gap = script.text[end : stray.override.start]
    if not _escapes_blank(stray) and _LINE_END.fullmatch(gap):
        edit = Edit(Span(script.path, end, end), " \\")
        return Fix("continue the command", Safety.UNSAFE, (edit,))
    if empty := _EMPTY_LINES.fullmatch(gap):
        edit = Edit(Span(script.path, end + empty.start(1), end + empty.end(1)), "")
        return Fix("remove what ends the command", Safety.UNSAFE, (edit,))
    return Declined("move what is between the overrides in front of the command by hand")
