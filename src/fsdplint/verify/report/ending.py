"""How ranks and the run ended: errors by rank, and the result in one line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from fsdplint.verify.events import Place
from fsdplint.verify.figures import plural, ranks_in_words
from fsdplint.verify.processes import death_in_words, death_sentence
from fsdplint.verify.verdict import CLEAN, RankSummary, Status, Verdict, Verification

_ENDED = {
    "steps": "reached the step limit",
    "script": "finished",
    "crash": "crashed",
    "exit": "exited with an error",
    "stuck": "hung",
    "working": "timed out, still running",
    "waiting": "timed out, waiting",
    "stopped": "stopped: another rank failed",
    "unmappable": "cannot run here",
}
_FRAME = re.compile(r'^  File "(?P<path>[^"]+)", line (?P<line>\d+),? in (?P<function>.+)$', re.M)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_INNERMOST_FIRST = "(most recent call first):"
"""What faulthandler writes above a stack."""


_EXPLAINING = ("collectives", "device-per-rank", "async-saves")
"""Clauses whose violation can end the script anywhere."""


@dataclass(frozen=True, slots=True)
class Error:
    """An error that ended some ranks.

    Attributes:
        said: how they ended, in a sentence.
        line: the exception and its message's first line; empty for a rank that died.
        place: the innermost line of the user's code.
        text: the first rank's traceback, or its last output.
    """

    ranks: tuple[int, ...]
    said: str
    line: str
    place: Place | None
    text: str


def how(rank: RankSummary) -> str:
    """Describe how a rank ended."""
    if rank.ended == "died":
        return death_in_words(rank.status)
    return _ENDED.get(rank.ended, rank.ended)


def errors(verification: Verification) -> list[Error]:
    """Return the errors of the ranks that had one, the earliest first; the same error of several
    ranks is one."""
    groups: dict[tuple[str, int | None], list[RankSummary]] = {}
    order = {rank: index for index, rank in enumerate(verification.failed)}
    for rank in sorted(verification.ranks, key=lambda rank: order.get(rank.rank, len(order))):
        if rank.status is not None:
            groups.setdefault(("", rank.status), []).append(rank)
        elif rank.error:
            groups.setdefault((last_line(rank.error), None), []).append(rank)
    return [_error(line, status, group) for (line, status), group in groups.items()]


def _error(line: str, status: int | None, group: Sequence[RankSummary]) -> Error:
    ranks, text = tuple(rank.rank for rank in group), group[0].error
    said = f"{ranks_in_words(ranks)} failed with an error"
    if not line:
        said = death_sentence(ranks, status)
    return Error(ranks, said, line, _place(text), text.strip())


def unexplained(verification: Verification) -> list[Error]:
    """Return the errors that no violated clause explains by its places or by what it quotes."""
    violated = verification.violated
    if not verification.failure or any(verdict.clause in _EXPLAINING for verdict in violated):
        return []
    places = {place for verdict in violated for place in verdict.places}
    quoted = "\n".join(line for verdict in violated for line in verdict.details)
    return [
        error
        for error in errors(verification)
        if error.place not in places and (not error.line or error.line not in quoted)
    ]


def one_line(error: Error) -> str:
    """Describe in one line who ended with what."""
    if error.line:
        return f"{ranks_in_words(error.ranks)}: {error.line}"
    return f"{error.said}{where(error)}"


def where(error: Error) -> str:
    """Return the place as the end of a sentence, if it is known."""
    return f" at {error.place}" if error.place else ""


def last_line(traceback: str) -> str:
    """Return the exception and the first line of its message."""
    lines = _COLOUR.sub("", traceback).strip().splitlines() or [""]
    frames = [index for index, line in enumerate(lines) if _FRAME.match(line)]
    after = lines[frames[-1] + 1 :] if frames else lines
    return next((line for line in after if line[:1].strip()), lines[-1]).strip()


def _place(traceback: str) -> Place | None:
    own = [m for m in _FRAME.finditer(traceback) if not PurePath(m["path"]).is_absolute()]
    own = [match for match in own if not match["path"].startswith("<")]
    if not own:
        return None
    innermost = own[0 if _INNERMOST_FIRST in traceback else -1]
    return Place(innermost["path"], int(innermost["line"]), innermost["function"])


def headline(verification: Verification) -> str:
    """Return what was run, in one line."""
    parts = [
        verification.torch and f"torch {verification.torch}",
        verification.device,
        plural(verification.world_size, "rank"),
        plural(max((rank.steps for rank in verification.ranks), default=0), "step"),
        f"{verification.seconds:.1f} s",
    ]
    return ", ".join(part for part in parts if part)


def summary(verification: Verification) -> str:
    """Return what is violated, or why nothing was judged, with counts and the exit code."""
    return f"{result(verification)} (exit {verification.exit_code})"


def result(verification: Verification) -> str:
    """Return the summary without the exit code."""
    counts = {s: sum(v.status is s for v in verification.verdicts) for s in Status}
    rest = {s: f"{number} {s.value}" for s, number in counts.items() if number}
    if verification.violated:
        del rest[Status.VIOLATED]
        named = ", ".join(map(_named, verification.violated))
        crash = [f"and {one_line(error)}" for error in unexplained(verification)[:1]]
        counted = [", ".join(rest.values())] if rest else []
        return "; ".join([f"Violated: {named}", *crash, *counted])
    if verification.failure and all(rank.ended in CLEAN for rank in verification.ranks):
        return f"{verification.failure[0].upper()}{verification.failure[1:]}"
    if verification.failure:
        return f"The script did not finish: {reason(verification)}"
    if not counts[Status.CONFIRMED]:
        return "No clause is violated or confirmed"
    return f"No clause is violated: {', '.join(rest.values())}"


def _named(verdict: Verdict) -> str:
    return f"{verdict.clause} ({verdict.places[0]})" if verdict.places else verdict.clause


def reason(verification: Verification) -> str:
    """Return why a run did not finish, in one line."""
    found = errors(verification)
    if found:
        return one_line(found[0])
    return (verification.failure.strip().splitlines() or [""])[0]
