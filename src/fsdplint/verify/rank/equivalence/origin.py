"""Make a run begin with the parameters and random numbers that another run began with."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import RandomSampler
from torch.utils.data.distributed import DistributedSampler

from fsdplint.verify.rank import access, generators
from fsdplint.verify.rank.equivalence.records import Training, trainings, whole
from fsdplint.verify.rank.patch import wrap
from fsdplint.verify.rank.reference.layout import Piece

_SIGMAS = 6.0
"""Standard errors within which means and deviations of two draws from one distribution lie."""


class Origin:
    """The other run, as its ranks have recorded it in `folder`."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._folder, self._rank = folder, rank

    @cached_property
    def _ranks(self) -> list[Training]:
        return trainings(self._folder)

    def adopt(self, name: str, piece: Piece) -> bool:
        """Give this rank's part of a parameter the value that it had in the other run.

        Return false if the part has that value, or if other random numbers do not explain the
        difference. A program that loads a state does not draw it; it keeps all of its own values.
        """
        was, complete = whole(pair for rank in self._ranks for pair in rank.start.get(name, ()))
        if not complete or tuple(was.shape) != piece.region.shape:
            return False
        before, now = piece.region.of(was), piece.value()
        loaded = any(rank.loaded for rank in self._ranks)
        if torch.equal(before.reshape(-1), now.reshape(-1).cpu()) or loaded:
            return False
        if not alike(before, now):
            return False
        now.copy_(before.reshape(now.shape))
        return True

    def restore(self, moment: str, now: dict[str, Any]) -> bool:
        """Restore the generators' states of a moment of the other run; false if they are equal."""
        if self._rank >= len(self._ranks):
            return False
        was = self._ranks[self._rank].generators.get(moment)
        if was is None or _digest(was) == _digest(now):
            return False
        generators.restore(was)
        return True


def shuffle_as_one_process() -> None:
    """Let a sampler for one rank shuffle as a ``DataLoader`` without one does.

    By itself it draws another order of the same data.
    """

    def iterate(original: Any, sampler: DistributedSampler[Any]) -> Iterator[Any]:
        if sampler.shuffle and sampler.num_replicas == 1:
            return iter(RandomSampler(sampler.dataset))  # type: ignore[arg-type]  # it has a length
        return original(sampler)  # type: ignore[no-any-return]

    wrap(DistributedSampler, "__iter__", iterate)


def alike(one: Tensor, other: Tensor) -> bool:
    """True if two tensors may be drawn from one distribution, by their means and deviations."""
    one, other = one.reshape(-1).double().cpu(), other.reshape(-1).double().cpu()
    if min(len(one), len(other)) < 2:
        return False
    wide = _SIGMAS * float(torch.minimum(one.std(), other.std())) / math.sqrt(len(one))
    means, deviations = abs(float(one.mean() - other.mean())), abs(float(one.std() - other.std()))
    return wide > 0.0 and means <= math.sqrt(2.0) * wide and deviations <= wide


def _digest(states: dict[str, Any]) -> list[str]:
    return [
        access.digest(state) if isinstance(state, Tensor) else str(state)
        for _, state in sorted(states.items())
    ]
