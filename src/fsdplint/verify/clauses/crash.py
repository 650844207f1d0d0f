"""Crashes as clauses read them: which error, from which line of the user's code."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.verify.events import Ended, Frame, Place, Sharded
from fsdplint.verify.evidence import Run
from fsdplint.verify.messages import MISSING


def crashes(run: Run, message: str) -> list[tuple[int, Ended]]:
    """Returns the ranks that ended with an error whose text holds `message`."""
    return [
        (rank.rank, rank.ended)
        for rank in run.ranks
        if rank.ended and rank.ended.how == "crash" and message in rank.ended.message
    ]


def refusals(run: Run) -> Iterator[tuple[str, Ended]]:
    """Yields what FSDP2 modules were asked for and do not have, with the crash that told."""
    classes = {event.cls for _, event in run.all(Sharded) if event.api == "fsdp2"}
    for _, ended in crashes(run, ""):
        match = MISSING.search(ended.message)
        if match and match["cls"] in classes:
            yield match["name"], ended


def own_place(ended: Ended) -> Place | None:
    """Returns the innermost line of the user's code in a traceback."""
    return next((frame.place for frame in reversed(ended.frames) if frame.own), None)


def unit_frame(ended: Ended) -> Frame | None:
    """Returns the innermost frame of the user's code that is a method of an FSDP2 unit."""
    return next((f for f in reversed(ended.frames) if f.own and f.unit), None)


def inside(ended: Ended, prefixes: tuple[str, ...]) -> bool:
    """Says whether the error came out of a function whose name begins so."""
    return any(frame.place.function.startswith(prefixes) for frame in ended.frames)
