"""How ranks ended, in words, and what can be said of those that did not come to their end."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath

from fsdplint.verify.events import Place
from fsdplint.verify.verdict import RankSummary

_ENDED = {
    "steps": "after its steps",
    "script": "at its end",
    "crash": "crashed",
    "exit": "exited with an error",
    "stuck": "stuck",
    "died": "died",
    "unmappable": "not possible here",
}
_FRAME = re.compile(r'^  File "(?P<path>[^"]+)", line (?P<line>\d+), in (?P<function>.+)$', re.M)


@dataclass(frozen=True, slots=True)
class Error:
    """An error that ended some ranks.

    Attributes:
        line: the exception and its message's first line.
        place: the innermost line of the user's code.
        text: the first rank's traceback, or its last output.
    """

    ranks: tuple[int, ...]
    line: str
    place: Place | None
    text: str


def how(rank: RankSummary) -> str:
    """Says how a rank ended."""
    return _ENDED.get(rank.ended, rank.ended)


def errors(ranks: Sequence[RankSummary]) -> list[Error]:
    """Returns the errors of the ranks that had one; the same error of several ranks is one."""
    by_line: dict[str, list[RankSummary]] = {}
    for rank in ranks:
        if rank.error:
            by_line.setdefault(last_line(rank.error), []).append(rank)
    return [
        Error(tuple(r.rank for r in group), line, _place(group[0].error), group[0].error.strip())
        for line, group in by_line.items()
    ]


def last_line(traceback: str) -> str:
    """Returns the exception and the first line of its message."""
    lines = traceback.strip().splitlines() or [""]
    frames = [index for index, line in enumerate(lines) if _FRAME.match(line)]
    after = lines[frames[-1] + 1 :] if frames else lines
    return next((line for line in after if line[:1].strip()), lines[-1]).strip()


def _place(traceback: str) -> Place | None:
    own = [m for m in _FRAME.finditer(traceback) if not PurePath(m["path"]).is_absolute()]
    own = [match for match in own if not match["path"].startswith("<")]
    return Place(own[-1]["path"], int(own[-1]["line"]), own[-1]["function"]) if own else None
