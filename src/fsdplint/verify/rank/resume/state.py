"""All that training goes on from on one rank: parameters, buffers, optimizer states."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from fsdplint.verify.rank import access
from fsdplint.verify.rank.reference.layout import Piece, Region, pieces, whole
from fsdplint.verify.rank.registry import Seen

PARAMETER, BUFFER, STATE = "parameter", "buffer", "optimizer state"
"""Kinds of entries."""
Entry = tuple[str, str]
"""A kind, and the name of one of its entries."""
Parts = dict[Entry, tuple[Region, Tensor]]
_EVERY_RANKS_OWN = (BUFFER,)
"""Kinds of which each rank may have values of its own, of which a save holds one rank's."""


@dataclass(frozen=True)
class Taken:
    """One rank's part of the state after so many optimizer steps.

    Attributes:
        unread: names of optimizer states that are cut otherwise than their parameter, as those of
            low-bit or factored optimizers are.
    """

    steps: int
    parts: Parts
    unread: tuple[str, ...]


def take(seen: Seen, buffers: Parts) -> Taken:
    """Copy this rank's part of the state of all models and their optimizers.

    Args:
        buffers: as they were before a forward changed them.

    Raises:
        Incomparable: a parameter is divided by more than FSDP.
    """
    parts: Parts = dict(buffers)
    unread: list[str] = []
    optimizers = list(seen.optimizers)
    for number, model in enumerate(seen.models()):
        of = f"model {number + 1}: " if number else ""
        for piece in pieces(model):
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
    for number, model in enumerate(seen.models()):
        of = f"model {number + 1}: " if number else ""
        for prefix, module in model.named_modules():
            for key, buffer in module._buffers.items():
                if buffer is not None and key not in module._non_persistent_buffers_set:
                    name = of + access.clean(f"{prefix}.{key}" if prefix else key)
                    value = access.local(buffer)
                    found[BUFFER, name] = (whole(tuple(value.shape)), _copy(value))
    return found


def _copy(value: Tensor) -> Tensor:
    return value.detach().clone().cpu()


def _states(optimizers: list[Optimizer], piece: Piece) -> Iterator[tuple[str, Tensor]]:
    """Yield what optimizers keep of a parameter."""
    for optimizer in optimizers:
        for key, value in optimizer.state.get(piece.parameter, {}).items():
            if isinstance(value, Tensor):
                yield str(key), value
            elif isinstance(value, int | float):
                yield str(key), torch.tensor(float(value))


def _part(piece: Piece, value: Tensor) -> tuple[Region, Tensor] | None:
    """Return the part of an optimizer's tensor that belongs to a piece, and where it lies."""
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


def settings(seen: Seen) -> Iterator[tuple[str, float]]:
    """Yield the numbers in the optimizers' groups, such as learning rates, with their names."""
    for number, optimizer in enumerate(seen.optimizers):
        of = f" of optimizer {number + 1}" if number else ""
        for index, group in enumerate(optimizer.param_groups):
            for key, value in group.items():
                if (setting := _number(value)) is not None:
                    yield f"{key} of group {index}{of}", setting


def _number(value: Any) -> float | None:
    if isinstance(value, Tensor) and value.numel() == 1:
        return float(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else None


def together(ranks: list[Taken]) -> dict[Entry, list[Tensor]]:
    """Return whole tensors of the parts of all ranks: one, or each rank's own.

    What no rank has stays nan.
    """
    found: dict[Entry, list[Tensor]] = {}
    for taken in ranks:
        for entry, (region, part) in taken.parts.items():
            if entry not in found or entry[0] in _EVERY_RANKS_OWN:
                fill = float("nan") if part.is_floating_point() else 0
                whole_ = torch.full(region.shape, fill, dtype=part.dtype)
                found.setdefault(entry, []).append(whole_)
            region.write(found[entry][-1], part)
    return found


def is_held(entry: Entry, mine: Taken) -> bool:
    """Whether this rank has a part of the parameter that an entry is of, or of the entry."""
    kind, name = entry
    of = (PARAMETER, name.split(" of ", 1)[1]) if kind == STATE else entry
    return entry in mine.parts or of not in mine.parts or mine.parts[of][0].elements > 0


def kinds(parts: Mapping[Entry, object]) -> Iterator[str]:
    """Yield the kinds that there are entries of, in their order."""
    present = {kind for kind, _ in parts}
    return (kind for kind in (PARAMETER, BUFFER, STATE) if kind in present)
