"""Points of a curve, and how steep it is on logarithmic axes."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from statistics import linear_regression

Point = tuple[int, float]


def slope(points: Sequence[Point]) -> float | None:
    """The power that cost grows with, by least squares; None for less than three points.

    Args:
        points: sizes, and costs above zero.
    """
    if len(points) < 3:
        return None
    sizes, costs = zip(*points, strict=True)
    return linear_regression([*map(log, sizes)], [*map(log, costs)]).slope
