"""The training state of one rank: parameters, buffers, optimizer states."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from fsdplint.verify.rank import access
from fsdplint.verify.rank.reference.layout import Piece, pieces
from fsdplint.verify.rank.reference.region import Box, Region, whole
from fsdplint.verify.rank.registry import Seen

PARAMETER, BUFFER, STATE = "parameter", "buffer", "optimizer state"
KINDS = (PARAMETER, BUFFER, STATE)
"""Kinds of entries."""
Entry = tuple[str, str]
"""A kind, and the name of one of its entries."""
Parts = dict[Entry, tuple[Region | Box, Tensor]]
_EVERY_RANKS_OWN = (BUFFER,)
"""Kinds of which each rank may have values of its own, of which a save holds one rank's."""


@dataclass(frozen=True)
class Taken:
    """One rank's part of the state after so many optimizer steps.

    Attributes:
        unread: names of optimizer states that are no tensors, or are cut otherwise than their
            parameter, as those of low-bit or factored optimizers are.
    """

    steps: int
    parts: Parts
    unread: tuple[str, ...]


def take(seen: Seen, buffers: Parts) -> Taken:
    """Copy this rank's part of the state of all models and their optimizers.

    Args:
        buffers: as they were before a forward changed them.

    Raises:
        Incomparable: a parameter is divided in a way that is not known.
    """
    parts: Parts = dict(buffers)
    unread: list[str] = []
    optimizers = list(seen.optimizers)
    for of, model in _models(seen):
        for piece in pieces(model, tensor_parallel=True):
            parts[PARAMETER, f"{of}{piece.name}"] = (piece.region, _copy(piece.value()))
            for key, value in _states(optimizers, piece):
                name = f"{key} of {of}{piece.name}"
                if (found := _part(piece, value)) is None:
                    unread.append(name)
                else:
                    parts[STATE, name] = found
    return Taken(seen.steps, parts, tuple(unread))


def take_buffers(seen: Seen) -> Parts:
    """Copy the buffers that a state dict has."""
    found: Parts = {}
    for of, model in _models(seen):
        for prefix, module in model.named_modules():
            for key, buffer in module._buffers.items():
                if buffer is not None and key not in module._non_persistent_buffers_set:
                    name = of + access.clean(f"{prefix}.{key}" if prefix else key)
                    value = access.local(buffer)
                    found[BUFFER, name] = (whole(tuple(value.shape)), _copy(value))
    return found


def digests(seen: Seen) -> tuple[str, ...]:
    """Return digests of this rank's parts of all parameters."""
    every = (piece for _, model in _models(seen) for piece in pieces(model, tensor_parallel=True))
    return tuple(access.digest(piece.value()) for piece in every)


def _models(seen: Seen) -> Iterator[tuple[str, nn.Module]]:
    """Yield the models in the order in which their first units were made, and how names begin."""

    def first(model: nn.Module) -> int:
        return min(seen.units[unit].number for unit in seen.inner_units(model))

    for number, model in enumerate(sorted(seen.models(), key=first)):
        yield f"model {number + 1}: " if number else "", model


def _copy(value: Tensor) -> Tensor:
    return value.detach().clone().cpu()


def _states(optimizers: list[Optimizer], piece: Piece) -> Iterator[tuple[str, Any]]:
    """Yield what optimizers keep of a parameter."""
    for optimizer in optimizers:
        for key, value in optimizer.state.get(piece.parameter, {}).items():
            number = isinstance(value, int | float)
            yield str(key), torch.tensor(float(value)) if number else value


def _part(piece: Piece, value: Any) -> tuple[Region | Box, Tensor] | None:
    """Return the part of an optimizer's tensor that belongs to a piece, and where it lies."""
    if not isinstance(value, Tensor):
        return None
    part = access.local(value)
    if part.dim() and part.numel() == piece.value().numel():
        return piece.region, _copy(part)
    if part.numel() == 1:  # of the parameter as a whole, as Adam's `step`
        return whole((1,)), _copy(part.reshape(1))
    if piece.span is not None and piece.flat is not None:
        start, length = piece.span
        if part.dim() == 1 and part.numel() >= start + length and piece.parameter is piece.flat:
            return piece.region, _copy(part.narrow(0, start, length))
    return None


def settings(optimizer: Optimizer) -> Iterator[tuple[str, float]]:
    """Yield the numbers in an optimizer's groups, such as learning rates, with their names."""
    for index, group in enumerate(optimizer.param_groups):
        for key, value in group.items():
            if (setting := _number(value)) is not None:
                yield f"{key} of group {index}", setting


def _number(value: Any) -> float | None:
    if isinstance(value, Tensor) and value.numel() == 1:
        return float(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else None


def wholes(ranks: list[Taken], entry: Entry) -> list[Tensor]:
    """Return a whole tensor of the parts of all ranks, or each rank's own.

    What no rank has stays nan.
    """
    found: list[Tensor] = []
    for taken in ranks:
        if entry in taken.parts:
            region, part = taken.parts[entry]
            if not found or entry[0] in _EVERY_RANKS_OWN:
                fill = float("nan") if part.is_floating_point() else 0
                found.append(torch.full(region.shape, fill, dtype=part.dtype))
            region.write(found[-1], part)
    return found


def is_held(entry: Entry, mine: Taken) -> bool:
    """True if this rank has a part of the entry, or of the entry's parameter."""
    kind, name = entry
    of = (PARAMETER, name.split(" of ", 1)[1]) if kind == STATE else entry
    return entry in mine.parts or of not in mine.parts or mine.parts[of][0].elements > 0
