"""Parts of a whole tensor, by where they lie in it."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from torch import Tensor


@dataclass(frozen=True)
class Region:
    """A part of a whole tensor: a range of one dimension, or of the flattened tensor.

    Attributes:
        shape: of the whole.
        dim: None for the flattened tensor.
    """

    shape: tuple[int, ...]
    dim: int | None
    start: int
    length: int

    def of(self, whole: Tensor) -> Tensor:
        """Return the part of a whole tensor; of a contiguous one, it is a view."""
        if self.dim is None:
            return whole.reshape(-1).narrow(0, self.start, self.length)
        return whole.narrow(self.dim, self.start, self.length)

    def write(self, whole: Tensor, part: Tensor) -> None:
        """Put a part in its place in a contiguous whole."""
        target = self.of(whole)
        target.copy_(part.reshape(target.shape))

    @property
    def elements(self) -> int:
        """How many elements the part has."""
        return self.length if self.dim is None else _area(self.shape, self.dim) * self.length


def _area(shape: tuple[int, ...], dim: int) -> int:
    return prod(size for at, size in enumerate(shape) if at != dim)


def whole(shape: tuple[int, ...]) -> Region:
    """Return the region that is everything."""
    return Region(shape, None, 0, prod(shape))


@dataclass(frozen=True)
class Box:
    """A part of a whole tensor that is a range of every dimension, as where tensor parallelism and
    FSDP both divide it."""

    shape: tuple[int, ...]
    starts: tuple[int, ...]
    lengths: tuple[int, ...]

    def of(self, whole: Tensor) -> Tensor:
        """Return the part of a whole tensor, a view."""
        for dim, (start, length) in enumerate(zip(self.starts, self.lengths, strict=True)):
            whole = whole.narrow(dim, start, length)
        return whole

    def write(self, whole: Tensor, part: Tensor) -> None:
        """Put a part in its place."""
        self.of(whole).copy_(part.reshape(self.lengths))

    @property
    def elements(self) -> int:
        """How many elements the part has."""
        return prod(self.lengths)
