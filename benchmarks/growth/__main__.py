"""How CPU time and memory grow with the size of what is checked.

Projects are generated in doubling sizes and checked by a process each, with an empty cache. Of the
time, what the smallest trainer takes is subtracted, and the slope is on logarithmic axes: 1 is cost
in proportion; above 1.1 it is too steep. Memory is that of the process at its peak.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.adversaries import SHAPES
from benchmarks.growth.projects import WAYS, Files, Way, script
from benchmarks.growth.slope import Point, slope
from benchmarks.speed.measure import Cost, cost_of, middle

_MOST = 1.1
_MOST_BYTES = 300_000_000
# Seconds above the smallest program's that tell growth from noise, as a part of that program's. It
# varies by a tenth from run to run, which is half of a fifth and would tilt a whole curve.
_TELLING = 0.5
_LEAST_ROUNDS = 9  # of the smallest program, whose error is in every figure


def cost(files: Files, rounds: int, limit: float) -> Cost | None:
    """What a check of ``files`` takes, None if it is more than ``limit`` seconds."""
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
            one = cost_of(command, Path(scratch), empty, limit, codes=(0, 1, 2))
            if not one.ended:
                return None
            costs.append(one)
        return middle(costs)


def curve(way: Way, rounds: int, limit: float) -> Iterator[tuple[int, Cost]]:
    """Sizes with what they take, up to the first that takes too long."""
    size = way.first
    while size <= way.last:
        found = cost(way.files(size), rounds, limit)
        if found is None:
            print(f"{way.files.__name__}: {size} takes more than {limit:g} s", flush=True)
            return
        yield size, found
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
    least = cost({"train.py": script()}, max(args.rounds, _LEAST_ROUNDS), args.limit)
    assert least is not None, "the smallest program takes too long"
    print(f"smallest program: {least.cpu:.2f} CPU s, subtracted below; {_mb(least)} MB\n")
    print("| | size: CPU s, MB | slope | |\n|---|---|---:|---|")
    steep = [name for name in args.ways if not _row(name, ways()[name], least.cpu, args)]
    sys.exit(1 if steep else 0)


def _row(name: str, way: Way, least: float, args: argparse.Namespace) -> bool:
    """Prints the curve of one way; whether it is flat enough."""
    points = list(curve(way, args.rounds, args.limit))
    times: list[Point] = [(size, found.cpu - least) for size, found in points]
    steepness = slope([(size, seconds) for size, seconds in times if seconds > _TELLING * least])
    shown = ", ".join(f"{size}: {c.cpu - least:.2f} s {_mb(c)} MB" for size, c in points)
    steep = "STEEP" if steepness is not None and steepness > _MOST else ""
    large = "LARGE" if max((found.memory for _, found in points), default=0) > _MOST_BYTES else ""
    number = "flat" if steepness is None else f"{steepness:.2f}"
    print(f"| {name} | {shown} | {number} | {steep} {large} |", flush=True)
    return not steep and not large


def _mb(found: Cost) -> int:
    return found.memory // 1_000_000


if __name__ == "__main__":
    main()
