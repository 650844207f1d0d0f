"""What each rank did: a table, and its memory and communication as bars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fsdplint.verify.figures import TIMES, count, size
from fsdplint.verify.report.ending import how
from fsdplint.verify.report.markup import Markup, tag
from fsdplint.verify.verdict import RankSummary, Traffic

_COLOURS = 6
_LAST_LINES = "last lines it printed"


def table(summaries: Sequence[RankSummary]) -> Markup:
    """A row for each rank."""
    head = tag("tr", *(tag("th", text) for text in ("rank", "device", "steps", "ended", "")))
    return tag("div", tag("table", head, *map(_row, summaries), class_="ranks"), class_="scroll")


def _row(rank: RankSummary) -> Markup:
    printed: Markup = Markup()
    if rank.output.strip():
        printed = tag("details", tag("summary", _LAST_LINES), tag("pre", rank.output.strip()))
    cells = (str(rank.rank), rank.device or "unknown", str(rank.steps), how(rank), printed)
    return tag("tr", *(tag("td", cell) for cell in cells))


def memory(summaries: Sequence[RankSummary]) -> Markup | None:
    """A bar for each rank, of CUDA's peak where there is one, else of the process's."""
    known = [(rank.rank, rank.memory) for rank in summaries if rank.memory]
    if not known:
        return None
    cuda = any(each.cuda for _, each in known)
    most = max(each.cuda if cuda else each.process for _, each in known)
    bars = []
    for rank, each in known:
        if cuda:
            pieces, text = [(each.cuda, "grown")], size(each.cuda)
        else:
            grown = max(0, each.process - each.before)
            pieces = [(each.process - grown, "before"), (grown, "grown")]
            text = f"{size(each.process)} (+{size(grown)})"
        bars.append(_bar(rank, pieces, most, text))
    note = (
        "The CUDA allocator's peak."
        if cuda
        else "The process's peak; the coloured end is what it has grown by since the script began."
    )
    return tag("section", tag("h2", "Peak memory"), *bars, tag("p", note, class_="aside"))


def communication(summaries: Sequence[RankSummary]) -> Markup | None:
    """A bar for each rank, cut by operation, and what the operations come to."""
    most = max((_sum(rank) for rank in summaries), default=0)
    if not most:
        return None
    totals: dict[str, int] = {}
    for rank in summaries:
        for each in rank.traffic:
            totals[each.operation] = totals.get(each.operation, 0) + each.size
    operations = sorted(totals, key=lambda name: -totals[name])
    colours = {name: f"op{at % _COLOURS}" for at, name in enumerate(operations)}
    bars = [
        _bar(rank.rank, list(_pieces(rank, colours)), most, size(_sum(rank))) for rank in summaries
    ]
    legend = [_legend(name, colours[name], summaries) for name in operations]
    note = "Bytes that a rank hands to collectives over the run."
    return tag(
        "section",
        tag("h2", "Communication"),
        *bars,
        tag("ul", *legend, class_="legend"),
        tag("p", note, class_="aside"),
    )


def _sum(rank: RankSummary) -> int:
    return sum(each.size for each in rank.traffic)


def _pieces(rank: RankSummary, colours: dict[str, str]) -> Iterator[tuple[int, str]]:
    sizes = {each.operation: each.size for each in rank.traffic}
    yield from ((sizes.get(name, 0), colour) for name, colour in colours.items())


def _legend(name: str, colour: str, summaries: Sequence[RankSummary]) -> Markup:
    seen = [each for rank in summaries for each in rank.traffic if each.operation == name]
    return tag("li", tag("i", class_=colour), tag("code", name), f" {_per_rank(seen)}")


def _per_rank(seen: Sequence[Traffic]) -> str:
    calls = [count(number) for number in sorted(each.calls for each in seen)]
    sizes = sorted(each.size for each in seen)
    called = calls[0] if calls[0] == calls[-1] else f"{calls[0]}-{calls[-1]}"
    sent = size(sizes[0]) if sizes[0] == sizes[-1] else f"{size(sizes[0])} to {size(sizes[-1])}"
    return f"{called}{TIMES} {sent}" if sizes[-1] else f"{called}{TIMES}"


def _bar(rank: int, pieces: Sequence[tuple[int, str]], most: int, text: str) -> Markup:
    parts = [
        tag("i", class_=colour, style=f"width:{100 * part / most:.2f}%")
        for part, colour in pieces
        if part
    ]
    return tag(
        "div",
        tag("span", f"rank {rank}", class_="who"),
        tag("span", *parts, class_="track"),
        tag("span", text, class_="much"),
        class_="bar",
    )
