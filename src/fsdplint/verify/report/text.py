"""A verification for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

from fsdplint.process.terminal import printable
from fsdplint.report.style import Style
from fsdplint.verify.events import Place
from fsdplint.verify.report import sharding
from fsdplint.verify.report.ending import Error, errors, where
from fsdplint.verify.report.excerpt import framed
from fsdplint.verify.report.layout import wrapped
from fsdplint.verify.report.summary import headline, summary
from fsdplint.verify.report.text_map import drawn
from fsdplint.verify.report.text_ranks import communication, table
from fsdplint.verify.verdict import Status, Verdict, Verification

_MARKS = {Status.CONFIRMED: "✓", Status.VIOLATED: "✗", Status.NOT_EXERCISED: "-"}
_ROLES = {Status.CONFIRMED: "added", Status.VIOLATED: "error", Status.NOT_EXERCISED: "aside"}
_MOST_PLACES = 6
_TAB = "\t"


def as_text(verification: Verification, directory: Path, style: Style, width: int) -> str:
    """What was run, each clause, what is violated, the sharding map, the ranks, and the sum.

    Args:
        directory: what places are relative to.
        width: of the terminal, in columns.
    """
    sections = [
        _header(verification, style, width),
        _clauses(verification, style, width),
        *(_violated(v, directory, style, width) for v in verification.violated),
        *_errors(verification, style, width),
        *_maps(verification, style, width),
        [*table(verification.ranks, style, width), *communication(verification.ranks, width)],
        [style(line, "path") for line in wrapped(summary(verification), width)],
    ]
    return "\n\n".join("\n".join(section) for section in sections if section) + "\n"


def _header(verification: Verification, style: Style, width: int) -> list[str]:
    command = printable(" ".join([verification.script, *verification.arguments]))
    lines = [style(command, "path"), *wrapped(headline(verification), width)]
    return lines + [line for note in verification.notes for line in wrapped(note, width, "note: ")]


def _clauses(verification: Verification, style: Style, width: int) -> list[str]:
    """One line a clause; where the run failed, what it did not come to goes without saying."""
    known = [
        verdict
        for verdict in verification.verdicts
        if verification.exit_code != 2 or verdict.status is not Status.NOT_EXERCISED
    ]
    room = max((len(verdict.clause) for verdict in known), default=0)
    return list(chain.from_iterable(_clause(verdict, room, style, width) for verdict in known))


def _clause(verdict: Verdict, room: int, style: Style, width: int) -> Iterator[str]:
    role, name = _ROLES[verdict.status], verdict.clause.ljust(room)
    head = f"{_MARKS[verdict.status]} {name}  "
    lines = wrapped(verdict.figures, width, head, " " * len(head))
    if verdict.status is Status.NOT_EXERCISED:
        yield from (style(line, role) for line in lines)
        return
    coloured = style(head[0], role) + " "
    coloured += style(name, role) if verdict.status is Status.VIOLATED else name
    yield coloured + lines[0][len(head) - 2 :]
    yield from lines[1:]


def _violated(verdict: Verdict, directory: Path, style: Style, width: int) -> list[str]:
    where = f" at {verdict.places[0]}" if verdict.places else ""
    lines = [style(f"✗ {verdict.clause}", "error") + style(printable(where), "path")]
    lines += wrapped(verdict.contract, width, "  asked: ")
    lines += wrapped(verdict.figures, width, "  seen:  ")
    for detail in verdict.details:
        for line in detail.splitlines():
            indent = " " * (len(line) - len(line.lstrip()))
            lines += wrapped(line.strip(), width, f"         {indent}")
    places = verdict.places[:_MOST_PLACES]
    frame = [f"  {line}" for line in framed(places, directory, style)]
    return lines + frame + _more(verdict.places[_MOST_PLACES:], width)


def _more(places: Sequence[Place], width: int) -> list[str]:
    return wrapped(f"and {', '.join(map(str, places))}", width, "  ") if places else []


def _maps(verification: Verification, style: Style, width: int) -> list[list[str]]:
    models = sharding.models(verification)
    if not models and verification.exit_code == 0:
        return [["no sharding: no module with parameters was an FSDP unit"]]
    return [drawn(model, verification.world_size, style, width) for model in models]


def _errors(verification: Verification, style: Style, width: int) -> Iterator[list[str]]:
    """Yields what ended the script: shortly where a violated clause says why, else whole."""
    if not verification.failure:
        return
    found = errors(verification)
    for index, error in enumerate(found):
        yield _error(error, style, width, whole=not (verification.violated or index))
    if not found:
        head, *rest = verification.failure.strip().splitlines()
        more = [] if verification.violated else [f"  {printable(line, _TAB)}" for line in rest]
        yield [style(f"! {printable(head)}", "error"), *more]


def _error(error: Error, style: Style, width: int, whole: bool) -> list[str]:
    head = style(f"! {error.said}", "error")
    lines = [head + style(printable(where(error)), "path")]
    if not whole:
        return lines + (wrapped(error.line, width, "  ") if error.line else [])
    return lines + [f"  {printable(line, _TAB)}" for line in error.text.splitlines()]
