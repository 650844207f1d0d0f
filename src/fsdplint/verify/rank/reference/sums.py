"""What one step's forwards and backwards add up to, over all ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from fsdplint.verify.events import Compared, Place
from fsdplint.verify.rank.reference import measure
from fsdplint.verify.rank.reference.measure import Difference
from fsdplint.verify.rank.reference.tape import Call, Key, Parts


class Outputs:
    """The forwards' results against the ranks' own."""

    def __init__(self, tolerance: float) -> None:
        self._tolerance, self._count = tolerance, 0
        self._worst: tuple[float, str, Place | None] = (-1.0, "", None)

    def compare(self, results: Sequence[Tensor], call: Call, rank: int) -> bool:
        """Compares one forward's; says whether it is too far off."""
        off = False
        for index, (mine, theirs) in enumerate(zip(results, call.outputs, strict=False)):
            if mine.is_floating_point() and mine.shape == theirs.shape:
                size = measure.distance(mine.detach(), theirs)
                relative = Difference(size, measure.norm(theirs)).relative
                self._count += 1
                off |= relative > self._tolerance
                if relative > self._worst[0]:
                    self._worst = (relative, f"output {index} on rank {rank}", call.place)
        return off

    def worst(self, step: int) -> Compared | None:
        """Returns the largest difference; None where there was nothing to compare."""
        relative, name, place = self._worst
        if not self._count:
            return None
        return Compared(step, "output", name, relative, self._tolerance, self._count, None, place)


class Gradients:
    """The mean of the ranks' gradients, and how large each rank's were."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._norms: dict[Key, float] = {}
        self.mean: Parts = {}

    def add(self, gradients: Parts) -> None:
        """Adds one rank's, in 32 bits at least."""
        for key, gradient in gradients.items():
            wide = torch.promote_types(gradient.dtype, torch.float32)
            share = gradient.to(wide) / self._ranks
            self.mean[key] = self.mean[key] + share if key in self.mean else share
            self._norms[key] = self._norms.get(key, 0.0) + measure.norm(share)

    def infinite(self) -> str:
        """Returns the name of a parameter whose gradient is not finite; empty without one."""
        bad = (key for key, gradient in self.mean.items() if not bool(gradient.isfinite().all()))
        return next((name for _, name in bad), "")

    def scale(self, key: Key) -> float:
        """Returns what a difference is a fraction of.

        The mean of the ranks' norms does not shrink where their gradients cancel out. A gradient
        that is all cancellation, as of a bias that a softmax undoes, is measured by the others.
        """
        elements = sum(gradient.numel() for gradient in self.mean.values())
        if not elements:
            return 0.0
        average = math.sqrt(sum(norm**2 for norm in self._norms.values()) / elements)
        own = self.mean[key].numel() if key in self.mean else 0
        return max(self._norms.get(key, 0.0), measure.FLOOR * average * math.sqrt(own))
