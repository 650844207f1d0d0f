"""What each rank leaves of its run, on the disk."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fsdplint.verify.rank.recorder import Unobservable
from fsdplint.verify.rank.reference.region import Box, Region
from fsdplint.verify.rank.unwatched import torch_load, torch_save

Parts = dict[str, list[tuple[Region | Box, Tensor]]]
"""A rank's parts of tensors, by name; of most tensors it has one."""


@dataclass(frozen=True)
class Training:
    """One rank's parameters, and what they depend on.

    Attributes:
        start: in the first forward of each model.
        adopted: those of them that were replaced by what they were in the other run.
        end: after the last optimizer step.
        gradients: the largest magnitude of each element's gradients that a step has used.
        generators: the states of the random number generators at some moments.
        restored: the moments at which they were not what they were in the other run, and were made
            so.
        short: 16-bit numbers take part.
        loaded: a model's state was loaded before the first forward.
    """

    start: Parts
    adopted: frozenset[str]
    end: Parts
    gradients: Parts
    generators: dict[str, dict[str, Any]]
    restored: tuple[str, ...]
    short: bool
    loaded: bool

    def write(self, folder: Path, rank: int) -> None:
        """Write it where `trainings` looks for it."""
        torch_save(self, folder / f"{rank}.training")


@dataclass(frozen=True)
class Saved:
    """What one rank wrote in one call.

    Attributes:
        path: relative to the working directory where it lies there.
        together: all ranks write their parts to one checkpoint (DCP).
        step: optimizer steps done.
        numbers: single numbers beside the tensors, by the keys that lead to them.
    """

    path: str
    writer: str
    together: bool
    step: int
    tensors: Parts
    numbers: dict[str, float]

    def write(self, folder: Path, rank: int, number: int) -> None:
        """Write it where `saves` looks for it."""
        torch_save(self, folder / f"{rank}.{number}.saved")


def copied(name: str, value: Tensor) -> Tensor:
    """Return a copy of a tensor that any process with PyTorch can read.

    Raises:
        Unobservable: it is a tensor of another library.
    """
    copy = value.detach().clone().cpu()
    if type(copy) is not Tensor:
        raise Unobservable(f"`{name}` is a `{type(copy).__name__}`")
    return copy


def trainings(folder: Path) -> list[Training]:
    """Read what all ranks have left, in their order."""
    files = sorted(folder.glob("*.training"), key=lambda file: int(file.stem))
    return [torch_load(file, weights_only=False, mmap=True) for file in files]


def saves(folder: Path) -> dict[int, list[Saved]]:
    """Read what each rank has saved, in its order."""
    found: dict[int, list[Saved]] = {}
    numbered = {tuple(map(int, file.stem.split("."))): file for file in folder.glob("*.saved")}
    for (rank, _), file in sorted(numbered.items()):
        found.setdefault(rank, []).append(torch_load(file, weights_only=False, mmap=True))
    return found


def whole(parts: Iterable[tuple[Region | Box, Tensor]]) -> tuple[Tensor, bool]:
    """Put the parts of a tensor together, and return whether they are all of it."""
    tensor, there = torch.empty(0), torch.empty(0)
    for region, part in parts:
        if there.dtype != torch.bool:
            tensor = torch.zeros(region.shape, dtype=part.dtype)
            there = torch.zeros(region.shape, dtype=torch.bool)
        if region.shape != tensor.shape:
            return tensor, False  # ranks do not even agree on its shape
        region.write(tensor, part)
        region.write(there, torch.ones_like(part, dtype=torch.bool))
    return tensor, bool(there.all())
