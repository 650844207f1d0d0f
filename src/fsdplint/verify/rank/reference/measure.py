"""How far two tensors are from each other, and how far they may be."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fsdplint.verify.rank.reference.region import Box, Region

TOLERANCE = 1e-5
"""Relative L2 for 32-bit numbers: ranks add up in another order, which costs some 1e-7."""
SHORT_TOLERANCE = 2e-2
"""The same where 16-bit numbers take part: each of their roundings costs up to 4e-3."""
FLOOR = 0.1
"""Of the average gradient: what is smaller than this may be cancellation, and is measured by it."""
_LAST_BITS = 4
Shares = list[tuple[Region | Box, Tensor | None]]
"""The ranks' parts of a tensor, with where they lie; a part that is None is zero."""


@dataclass(frozen=True)
class Difference:
    """A difference and what it is a fraction of, both as L2 norms."""

    size: float
    scale: float

    @property
    def relative(self) -> float:
        """The difference as a fraction; infinite for a difference from nothing, or from nan."""
        if self.size == 0.0:
            return 0.0
        return self.size / self.scale if self.scale > 0.0 else math.inf


def apart(whole: Tensor, shares: Shares) -> float:
    """Return the L2 distance of a whole tensor from the ranks' parts of it.

    Elements that several ranks have count once. Numbers that are not finite in both are equal; in
    one of them only, they are infinitely far apart.
    """
    square, elements = 0.0, 0
    for region, part in shares:
        mine = region.of(whole.cpu())
        square += distance(mine, torch.zeros_like(mine) if part is None else part) ** 2
        elements += region.elements
    return math.sqrt(square * whole.numel() / elements) if elements else 0.0


def times(whole: Tensor, shares: Shares) -> float | None:
    """Return what multiple of a whole tensor the ranks have; None where it is not one."""
    both = [(region.of(whole.cpu()), part) for region, part in shares]
    square = sum(norm(mine) ** 2 for mine, _ in both)
    factor = sum(_dot(mine, part) for mine, part in both if part is not None) / (square or 1.0)
    rest = apart(whole * factor, shares)
    return factor if math.isfinite(factor) and rest <= SHORT_TOLERANCE * norm(whole) else None


def _dot(one: Tensor, other: Tensor) -> float:
    return float(one.reshape(-1).double() @ other.reshape(-1).double())


def distance(one: Tensor, other: Tensor) -> float:
    """Return the L2 distance of two tensors of as many elements."""
    one, other = one.reshape(-1).double().cpu(), other.reshape(-1).double().cpu()
    finite = one.isfinite()
    if not torch.equal(finite, other.isfinite()):
        return math.inf
    return float((one[finite] - other[finite]).norm())


def norm(tensor: Tensor) -> float:
    """Return the L2 norm of a tensor's finite elements."""
    flat = tensor.reshape(-1).double()
    return float(flat[flat.isfinite()].norm())


def update_scale(before: Tensor, after: Tensor, tolerance: float) -> float:
    """Return what a difference in a stepped parameter is a fraction of: the step's own size, or
    so much of the parameter that its last bits stay within tolerance."""
    bits = _LAST_BITS * torch.finfo(after.dtype).eps / tolerance
    return max(distance(before, after), bits * norm(after))
