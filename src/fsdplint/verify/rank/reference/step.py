"""One optimizer step of all ranks: their strides side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from fsdplint.verify.rank.reference import measure, tape
from fsdplint.verify.rank.reference.layout import Incomparable
from fsdplint.verify.rank.reference.measure import Shares
from fsdplint.verify.rank.reference.tape import Clip, Key, Parts, Stride


class Step:
    """What the ranks' tapes hold of one step.

    Attributes:
        strides: one a rank; `first` stands for what is the same in all of them.
    """

    def __init__(self, strides: Sequence[Stride]) -> None:
        self.strides, self.first = strides, strides[0]

    @property
    def tolerance(self) -> float:
        """How far numbers may be off."""
        short = any(stride.short for stride in self.strides)
        return measure.SHORT_TOLERANCE if short else measure.TOLERANCE

    @property
    def doubt(self) -> str:
        """Why a difference would not be the sharding's; empty where it would."""
        return next((stride.doubt for stride in self.strides if stride.doubt), "")

    @property
    def computes(self) -> bool:
        """Says whether there was a backward since the step before."""
        return any(stride.backwards for stride in self.strides)

    @property
    def edited(self) -> bool:
        """Says whether the step's gradients are not just what backward and clipping make them."""
        return any(s.base or (s.backwards and _changed(s.last, s.stepped)) for s in self.strides)

    @property
    def clips(self) -> Iterator[tuple[Clip, ...]]:
        """Yields each clipping, as all ranks did it."""
        return zip(*(stride.clips for stride in self.strides), strict=False)

    def check(self, shapes: dict[Key, tuple[int, ...]]) -> None:
        """Makes sure that a model with these parameters can play it.

        Raises:
            Incomparable: it cannot.
        """
        if obstacle := next((s.obstacle for s in self.strides if s.obstacle), ""):
            raise Incomparable(obstacle)
        for stride in self.strides:
            if stride.optimizer != self.first.optimizer:
                raise Incomparable("ranks step different optimizers")
            there = {key: region.shape for key, region in stride.layout.items()}
            if other := sorted(name for (_, name), _ in there.items() ^ shapes.items()):
                raise Incomparable(f"in one process the script makes another model (`{other[0]}`)")
            if stride.calls and not stride.backwards:
                raise Incomparable("gradients do not come from `backward`")
        if self.computes and not any(stride.calls for stride in self.strides):
            raise Incomparable("no backward went through a forward of the model as a whole")

    def shares(self, key: Key, parts: Sequence[Parts]) -> Shares:
        """Returns each rank's part of a tensor, with where it lies."""
        return [(s.layout[key], p.get(key)) for s, p in zip(self.strides, parts, strict=True)]

    def join(self, parts: Sequence[Parts]) -> Parts:
        """Puts whole tensors together from the ranks' parts; what no rank has of one is zero."""
        whole = {}
        for key, part in ((key, part) for mine in parts for key, part in mine.items()):
            if key not in whole:
                whole[key] = torch.zeros(self.first.layout[key].shape, dtype=part.dtype)
        for stride, mine in zip(self.strides, parts, strict=True):
            for key, part in mine.items():
                stride.layout[key].write(whole[key], part)
        return whole

    def gradients(self, key: Key) -> Iterator[Shares]:
        """Yields what the ranks' parts of a gradient may be taken to be.

        What was there before the backward may have been removed first. A parameter outside every
        unit may be averaged by the script itself, before it steps.
        """
        base, arrived = [s.base for s in self.strides], [s.arrived for s in self.strides]
        yield self.shares(key, arrived)
        if any(key in mine for mine in base):
            yield [
                (region, _minus(part, old))
                for (region, part), (_, old) in zip(
                    self.shares(key, arrived), self.shares(key, base), strict=True
                )
            ]
        if key not in self.first.units:
            yield self.shares(key, [s.stepped for s in self.strides])

    def factors(self, key: Key, rest: float) -> list[float]:
        """Returns by how much ranks' parts of a gradient were scaled after backward and clipping.

        Leaves out where there is nothing to scale, or more than `rest` of it changed otherwise.
        """
        found = [_factor(s.last.get(key), s.stepped.get(key), rest) for s in self.strides]
        return [factor for factor in found if factor is not None]


class Tapes:
    """All ranks' tapes in one folder; its length is how many steps every rank has taken."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        names = {file.name.split(".")[0] for file in folder.glob("*.stride")}
        self.ranks = sorted(map(int, names))

    def __iter__(self) -> Iterator[Step]:
        for number in range(min(tape.count(self._folder, rank) for rank in self.ranks)):
            yield Step([tape.load(self._folder, rank, number) for rank in self.ranks])


def _minus(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    if one is None or other is None:
        return one if other is None else -other
    return one - other


def _changed(before: Parts, after: Parts) -> bool:
    return any(
        not torch.equal(before[key], part) if key in before else bool(part.any())
        for key, part in after.items()
    )


def _factor(before: Tensor | None, after: Tensor | None, rest: float) -> float | None:
    if before is None or after is None:
        return None
    if torch.equal(before, after):
        return 1.0
    one, other = before.reshape(-1).double(), after.reshape(-1).double()
    factor = float(one @ other / (one @ one))
    pure = measure.distance(one * factor, other) <= rest * measure.norm(other)
    return factor if pure and math.isfinite(factor) else None
