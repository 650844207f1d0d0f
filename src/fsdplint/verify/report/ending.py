"""How ranks ended, in words, and what can be said of those that did not come to their end."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from fsdplint.verify.events import Place
from fsdplint.verify.figures import ranks_in_words
from fsdplint.verify.processes import death_in_words, death_sentence
from fsdplint.verify.verdict import RankSummary, Verification

_ENDED = {
    "steps": "after its steps",
    "script": "at its end",
    "crash": "crashed",
    "exit": "exited with an error",
    "stuck": "stuck",
    "stopped": "stopped after another rank",
    "unmappable": "not possible here",
}
_FRAME = re.compile(r'^  File "(?P<path>[^"]+)", line (?P<line>\d+),? in (?P<function>.+)$', re.M)
_INNERMOST_FIRST = "(most recent call first):"
"""What faulthandler writes above a stack."""


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
    """Says how a rank ended."""
    if rank.ended == "died":
        return death_in_words(rank.status)
    return _ENDED.get(rank.ended, rank.ended)


def errors(verification: Verification) -> list[Error]:
    """Returns the errors of the ranks that had one, the earliest first; the same error of several
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
    said = f"{ranks_in_words(ranks)} ended with an error"
    if not line:
        said = death_sentence(ranks, status)
    return Error(ranks, said, line, _place(text), text.strip())


def told(error: Error) -> str:
    """Says in one line who ended with what."""
    if error.line:
        return f"{ranks_in_words(error.ranks)}: {error.line}"
    return f"{error.said}{where(error)}"


def where(error: Error) -> str:
    """Says where, if that is known."""
    return f" at {error.place}" if error.place else ""


def last_line(traceback: str) -> str:
    """Returns the exception and the first line of its message."""
    lines = traceback.strip().splitlines() or [""]
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
