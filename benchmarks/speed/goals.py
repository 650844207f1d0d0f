"""What fsdplint is held to, as ratios of what was measured in one run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.speed.table import Measured

COLD, WARM = "fsdplint, cold", "fsdplint, warm"
RUFF, TORCHFIX, PARSE = "ruff", "torchfix", "floor: libcst.parse_module"
_MOST_MEMORY = 300e6


@dataclass(frozen=True, slots=True)
class Goal:
    """``ours`` takes at most ``most`` times what ``theirs`` takes, in a package or in every one."""

    package: str
    ours: str
    measure: str
    theirs: str
    most: float


GOALS = (
    Goal("transformers", COLD, "wall", RUFF, 1.0),
    Goal("transformers", WARM, "wall", RUFF, 0.2),
    Goal("accelerate", COLD, "cpu", PARSE, 2.0),
    Goal("accelerate", WARM, "wall", RUFF, 0.6),
    Goal("torchtitan", COLD, "cpu", PARSE, 2.0),
    Goal("torchtitan", WARM, "wall", RUFF, 0.6),
    Goal("", COLD, "wall", TORCHFIX, 1 / 50),
    Goal("", COLD, "cpu", TORCHFIX, 1 / 50),
)


def verdicts(measured: Measured) -> Iterator[str]:
    """A line for each goal that a package's figures can be held to."""
    for goal in GOALS:
        known = {goal.ours, goal.theirs} <= measured.costs.keys()
        if known and goal.package in ("", measured.name):
            ratio = measured.ratio(goal.ours, goal.theirs, goal.measure)
            yield (
                f"{_met(ratio <= goal.most)}: {goal.measure} of {goal.ours}: {ratio:.3g} times "
                f"{goal.theirs}, at most {goal.most:g}"
            )
    memory = max(measured.middle(name).memory for name in (COLD, WARM))
    yield f"{_met(memory <= _MOST_MEMORY)}: memory: {memory / 1e6:.0f} MB, at most 300"


def _met(met: bool) -> str:
    return "met" if met else "MISSED"
