"""A verification as one page that needs nothing else: no script, no font, no network.

`page.html` is the page; this module computes what it shows. Whatever the run brought, such as names
and messages, is escaped by the template, and control characters are made visible.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup, escape

from fsdplint.process.terminal import printable
from fsdplint.verify.events import Place
from fsdplint.verify.figures import TIMES, count, percent, size
from fsdplint.verify.report import ending, sharding
from fsdplint.verify.report.excerpt import Excerpt, excerpts
from fsdplint.verify.report.sharding import Kept, Piece
from fsdplint.verify.verdict import RankSummary, Status, Verification

_LOOKS = {
    Status.VIOLATED: ("violated", "✗"),
    Status.CONFIRMED: ("confirmed", "✓"),
    Status.NOT_EXERCISED: ("skipped", "-"),
}
"""The class and the mark of a clause, in the order in which clauses are shown."""
_COLOURS = 6

Bar = tuple[int, list[tuple[int, str]], str]
"""A rank, the lengths of its bar's pieces with their colours, and the text beside it."""


def as_html(verification: Verification, directory: Path) -> str:
    """Return the page; `directory` is what places are relative to."""
    folder, order = files(__package__), list(_LOOKS)
    environment = Environment(autoescape=True, finalize=_shown, undefined=StrictUndefined)
    environment.filters["prose"] = _prose
    lines = (folder / "page.html").read_text("utf-8").splitlines()
    return environment.from_string("".join(map(str.strip, lines))).render(
        v=verification,
        style=Markup((folder / "page.css").read_text("utf-8")),
        headline=ending.headline(verification),
        result=ending.result(verification),
        looks=_LOOKS,
        verdicts=sorted(verification.verdicts, key=lambda each: order.index(each.status)),
        evidence=lambda places: _evidence(places, directory),
        errors=ending.errors(verification),
        where=ending.where,
        how=ending.how,
        models=sharding.models(verification),
        counts=sharding.counts,
        remarks=sharding.remarks,
        figures=sharding.figures,
        shares=sharding.shares,
        stair=lambda parts: zip(parts, stair_starts(parts), strict=True),
        spoken=_spoken,
        several_of=lambda number, noun: f"{number} {TIMES} {noun}" if number > 1 else noun,
        cells=_cells,
        memory=_memory(verification.ranks),
        traffic=_traffic(verification.ranks),
    )


def _shown(value: Any) -> Any:
    return value if isinstance(value, Markup) else printable(str(value), "\t\n")


def _prose(text: str) -> Markup:
    """Return a text in which what is in backticks is code."""
    escaped = str(escape(_shown(text)))
    return Markup(re.sub(r"`([^`\n]+)`", r"<code>\1</code>", escaped))


def _evidence(
    places: Sequence[Place], directory: Path
) -> tuple[list[tuple[Excerpt, str, set[int], int]], str]:
    """Return the excerpts at some places, and the places that cannot be read.

    With each excerpt go its caption, the numbers of the lines to mark, and the numbers' width.
    """
    read = list(excerpts(places, directory))
    shown = {place for excerpt in read for place in excerpt.places}
    found = [
        (
            excerpt,
            ", ".join(dict.fromkeys(map(_where, excerpt.places))),
            {place.line for place in excerpt.places},
            len(str(excerpt.lines[-1][0])),
        )
        for excerpt in read
    ]
    return found, ", ".join(str(place) for place in places if place not in shown)


def _where(place: Place) -> str:
    return f"{place} in {place.function}" if place.function else str(place)


def stair_starts(parts: Sequence[float]) -> list[float]:
    """Return where each rank's part of a whole begins.

    It is after the part before, from 0 again when a copy is full. Parts that make no whole copies
    are evenly spread.
    """
    total, found = 0.0, []
    if abs(sum(parts) - round(sum(parts))) > 1e-6:
        last = max(1, len(parts) - 1)
        return [at / last * (1 - part) for at, part in enumerate(parts)]
    for part in parts:
        if total + part > 1 + 1e-6:
            total = 0.0
        found.append(total)
        total += part
    return found


def _spoken(kept: Kept, parts: Sequence[float]) -> str:
    return ", ".join(f"rank {n} {percent(p)}" for (n, _), p in zip(kept, parts, strict=True))


def _cells(piece: Piece, unit: str) -> tuple[str, ...]:
    """Return a row of the table of a unit's parameters."""
    parameter = piece.parameter
    name = parameter.name.removeprefix(f"{unit}.") if unit else parameter.name
    notes = [sharding.placed(piece)]
    if not parameter.trainable:
        notes.append("frozen")
    elif not parameter.held:
        notes.append("in no optimizer")
    shapes = (_shape(parameter.shape), _shape(parameter.local_shape))
    return name, *shapes, parameter.dtype, ", ".join(notes)


def _shape(shape: Sequence[int]) -> str:
    return f" {TIMES} ".join(map(str, shape)) or "scalar"


@dataclass(frozen=True)
class _Chart:
    """A bar for each rank; `most` is the length of the longest one."""

    bars: list[Bar]
    most: int
    note: str = ""
    legend: tuple[tuple[str, str, str], ...] = ()


def _memory(ranks: Sequence[RankSummary]) -> _Chart | None:
    """Chart the peaks of CUDA where there is one, else of the processes."""
    known = [(rank.rank, rank.memory) for rank in ranks if rank.memory]
    if any(each.cuda for _, each in known):
        bars: list[Bar] = [(n, [(each.cuda, "grown")], size(each.cuda)) for n, each in known]
        return _Chart(bars, max(each.cuda for _, each in known), "Peak of the CUDA allocator.")
    bars = []
    for number, each in known:
        grown = max(0, each.process - each.before)
        pieces = [(each.process - grown, "before"), (grown, "grown")]
        bars.append((number, pieces, f"{size(each.process)} (+{size(grown)})"))
    note = "Peak of the process. The colored end is the growth since the script started."
    return _Chart(bars, max(each.process for _, each in known), note) if known else None


def _traffic(ranks: Sequence[RankSummary]) -> _Chart | None:
    """Chart what each rank sent, cut by operation, with what the operations come to."""
    totals: Counter[str] = Counter()
    for rank in ranks:
        for each in rank.traffic:
            totals[each.operation] += each.size
    colours = {name: f"op{at % _COLOURS}" for at, (name, _) in enumerate(totals.most_common())}
    bars: list[Bar] = []
    for rank in ranks:
        sizes = {each.operation: each.size for each in rank.traffic}
        pieces = [(sizes.get(name, 0), colour) for name, colour in colours.items()]
        bars.append((rank.rank, pieces, size(sum(sizes.values()))))
    most = max((sum(part for part, _ in pieces) for _, pieces, _ in bars), default=0)
    legend = ((name, colour, _per_rank(name, ranks)) for name, colour in colours.items())
    return _Chart(bars, most, legend=tuple(legend)) if most else None


def _per_rank(operation: str, ranks: Sequence[RankSummary]) -> str:
    """Return the calls and bytes of an operation, from the least to the most of any rank."""
    seen = [each for rank in ranks for each in rank.traffic if each.operation == operation]
    calls = [count(number) for number in sorted(each.calls for each in seen)]
    sizes = sorted(each.size for each in seen)
    called = calls[0] if calls[0] == calls[-1] else f"{calls[0]}-{calls[-1]}"
    sent = size(sizes[0]) if sizes[0] == sizes[-1] else f"{size(sizes[0])} to {size(sizes[-1])}"
    noun = "call" if called == "1" else "calls"
    return f"{sent} ({called} {noun})" if sizes[-1] else f"({called} {noun})"
