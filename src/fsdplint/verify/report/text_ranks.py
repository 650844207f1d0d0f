"""What each rank did, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fsdplint.report.style import Style
from fsdplint.verify.figures import TIMES, count, ranks_in_words, size
from fsdplint.verify.report.ending import how
from fsdplint.verify.report.layout import columns, wrapped
from fsdplint.verify.verdict import RankSummary, Traffic


def table(summaries: Sequence[RankSummary], style: Style, width: int) -> Iterator[str]:
    """Yields a line for each rank: device, steps, memory, how it ended."""
    if not summaries:
        return
    cuda = any(rank.memory and rank.memory.cuda for rank in summaries)
    head = ["rank", "device", "steps", *(["CUDA peak"] if cuda else []), "peak memory", "ended"]
    rows = [head, *(_row(rank, cuda) for rank in summaries)]
    first, *rest = columns(rows, "<<>>><" if cuda else "<<>><", width)
    yield style("ranks", "path")
    yield style(first, "aside")
    yield from rest


def _row(rank: RankSummary, cuda: bool) -> list[str]:
    memory = rank.memory
    peak = "unknown"
    if memory:
        peak = f"{size(memory.process)} (+{size(max(0, memory.process - memory.before))})"
    on_device = [size(memory.cuda) if memory else "unknown"] if cuda else []
    return [str(rank.rank), rank.device or "unknown", str(rank.steps), *on_device, peak, how(rank)]


def communication(summaries: Sequence[RankSummary], width: int) -> Iterator[str]:
    """Yields what the ranks sent, those that sent the same together."""
    by_traffic: dict[tuple[Traffic, ...], list[int]] = {}
    for rank in summaries:
        by_traffic.setdefault(rank.traffic, []).append(rank.rank)
    for traffic, group in by_traffic.items():
        if traffic:
            who = "each rank" if len(by_traffic) == 1 else ranks_in_words(group)
            yield from wrapped(_sent(traffic), width, f"  sent by {who}: ", "    ")


def _sent(traffic: Sequence[Traffic]) -> str:
    ordered = sorted(traffic, key=lambda each: -each.size)
    return ", ".join(
        f"{t.operation} {count(t.calls)}{TIMES}{f' {size(t.size)}' if t.size else ''}"
        for t in ordered
    )
