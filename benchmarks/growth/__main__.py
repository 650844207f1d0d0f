"""How CPU time grows with the size of what is checked: a slope on logarithmic axes for each way.

Projects are generated in doubling sizes and checked by a process each, with an empty cache. What
the smallest trainer takes is subtracted. A slope of 1 is cost in proportion; above 1.1 it is too
steep.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.adversaries import SHAPES
from benchmarks.growth.projects import WAYS, Files, Way, script
from benchmarks.growth.slope import Point, slope
from benchmarks.speed.measure import cost_of

_MOST = 1.1
# Seconds above the smallest program's that tell growth from noise, as a part of that program's. It
# varies by a tenth from run to run, which is half of a fifth and would tilt a whole curve.
_TELLING = 0.5
_LEAST_ROUNDS = 9  # of the smallest program, whose error is in every figure


def cpu(files: Files, rounds: int, limit: float) -> float | None:
    """Seconds that a check of ``files`` takes, None if it is more than ``limit``."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "project")
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        command = (sys.executable, "-m", "fsdplint", "check", "--isolated", str(folder))
        costs = []
        for number in range(rounds):
            empty = {"FSDPLINT_CACHE_DIR": str(Path(scratch, f"cache{number}"))}
            # 2 is that a program is too demanding, and said to be.
            cost = cost_of(command, Path(scratch), empty, limit, codes=(0, 1, 2))
            if not cost.ended:
                return None
            costs.append(cost.cpu)
        return median(costs)


def curve(way: Way, least: float, rounds: int, limit: float) -> Iterator[Point]:
    """Sizes with what they take above ``least``, up to the first that takes too long."""
    size = way.first
    while size <= way.last:
        seconds = cpu(way.files(size), rounds, limit)
        if seconds is None:
            print(f"{way.files.__name__}: {size} takes more than {limit:g} s", flush=True)
            return
        yield size, seconds - least
        size *= 2


def ways() -> dict[str, Way]:
    """Every way to grow: those of whole projects, and the scripts that mean ill."""
    return {**WAYS, **{name: _doubling(name) for name in SHAPES}}


def _doubling(name: str) -> Way:
    """A shape up to its largest size, by four doublings."""
    shape = SHAPES[name]
    first = max(1, shape.largest // 16)

    def files(size: int) -> Files:
        return {"train.py": shape.text(size)}

    files.__name__ = name
    return Way(files, first, shape.largest)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ways", nargs="+", choices=ways(), default=list(ways()), metavar="NAME")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=120, help="seconds for one check")
    args = parser.parse_args()
    least = cpu({"train.py": script()}, max(args.rounds, _LEAST_ROUNDS), args.limit)
    assert least is not None, "the smallest program takes too long"
    print(f"smallest program: {least:.2f} CPU s, subtracted below\n")
    print("| | size: CPU s | slope | |\n|---|---|---:|---|")
    steep = [name for name in args.ways if not _row(name, ways()[name], least, args)]
    sys.exit(1 if steep else 0)


def _row(name: str, way: Way, least: float, args: argparse.Namespace) -> bool:
    """Prints the curve of one way; whether it is flat enough."""
    points = list(curve(way, least, args.rounds, args.limit))
    telling = [(size, cost) for size, cost in points if cost > _TELLING * least]
    steepness = slope(telling)
    shown = ", ".join(f"{size}: {cost:.2f}" for size, cost in points)
    flat = steepness is None or steepness <= _MOST
    number = "flat" if steepness is None else f"{steepness:.2f}"
    print(f"| {name} | {shown} | {number} | {'' if flat else 'STEEP'} |", flush=True)
    return flat


if __name__ == "__main__":
    main()
