"""Lets the unsharded model train by itself, with its own gradients, from start to end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from torch.optim import Optimizer

from fsdplint.verify.rank.reference import measure
from fsdplint.verify.rank.reference.player import Player, clip
from fsdplint.verify.rank.reference.step import Step, Tapes
from fsdplint.verify.rank.reference.tape import Parts
from fsdplint.verify.rank.reference.whole import Whole


def states(optimizers: Sequence[Optimizer]) -> list[dict[str, Any]]:
    """Returns copies of the optimizers' states."""
    return [deepcopy(optimizer.state_dict()) for optimizer in optimizers]


def drift(
    model: Whole, optimizers: Sequence[Optimizer], begun: Sequence[dict[str, Any]], tapes: Tapes
) -> float | None:
    """Returns how far all parameters together end from the sharded run's, as relative L2.

    None where the script itself changes gradients or parameters on its way.

    Args:
        begun: what `states` gave before the first step.
    """
    for optimizer, state in zip(optimizers, begun, strict=True):
        optimizer.load_state_dict(state)
    player, gradients = Player(model, optimizers, len(tapes.ranks)), Parts()
    last: Step | None = None
    for step in tapes:
        if step.edited or (last is not None and any(s.before for s in step.strides)):
            return None
        player.load(step)
        if step.computes:
            gradients = _computed(player, step)
        present = {key for stride in step.strides for key in stride.stepped}
        player.step(step, {key: g for key, g in gradients.items() if key in present})
        for known, stride in zip(player.known, step.strides, strict=True):
            known |= stride.after
        last = step
    return None if last is None else _distance(model, player, last)


def _computed(player: Player, step: Step) -> Parts:
    """Returns the model's own gradients, clipped as the script clips them."""
    gradients = player.compute(step)[1].mean
    for clips in step.clips:
        keys = set(clips[0].keys)
        gradients |= clip({k: g for k, g in gradients.items() if k in keys}, clips[0])
    return gradients


def _distance(model: Whole, player: Player, last: Step) -> float:
    size = scale = 0.0
    for key in model.pieces:
        mine = model.parameter(key)
        size += measure.apart(mine, last.shares(key, player.known)) ** 2
        scale += measure.norm(mine) ** 2
    return measure.Difference(math.sqrt(size), math.sqrt(scale)).relative
