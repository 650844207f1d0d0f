"""What was measured of one package, and the Markdown table of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.speed.measure import Cost, middle


@dataclass(frozen=True, slots=True)
class Measured:
    """The runs of every tool on one package, in the order they were made.

    Attributes:
        title: the package, its size, and how much of it was checked.
        costs: by the tool's name; a slow tool has one, the others one per round.
    """

    name: str
    title: str
    costs: Mapping[str, Sequence[Cost]]

    def middle(self, tool: str) -> Cost:
        return middle(self.costs[tool])

    def ratio(self, ours: str, theirs: str, measure: str) -> float:
        """How many times ``theirs`` ``ours`` takes: the median of the rounds."""
        pairs = zip(self.costs[ours], self.costs[theirs], strict=False)
        return median(getattr(a, measure) / getattr(b, measure) for a, b in pairs)


def table(measured: Measured, beside: str, floor: str) -> Iterator[str]:
    """The lines of a table with ratios to the tools ``beside`` and ``floor``."""
    yield f"| {measured.title} | wall s | to {beside} | CPU s | to {beside} | to parse | peak MB |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for tool in measured.costs:
        cost = measured.middle(tool)
        more = "" if cost.ended else "> "
        wall, cpu = (measured.ratio(tool, beside, measure) for measure in ("wall", "cpu"))
        parse = measured.ratio(tool, floor, "cpu")
        yield (
            f"| {tool} | {more}{cost.wall:.3f} | {more}{wall:.3g} | {more}{cost.cpu:.3f} "
            f"| {more}{cpu:.3g} | {more}{parse:.3g} | {cost.memory / 1e6:.0f} |"
        )
