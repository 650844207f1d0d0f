"""Replace the training loop in a single process, and replay all ranks' tapes.

Then the unsharded model trains on its own gradients, and its distance at the end is noted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from fsdplint.verify.events import Drifted, NotCompared
from fsdplint.verify.rank.patch import wrap
from fsdplint.verify.rank.probes.steps import Finished
from fsdplint.verify.rank.recorder import prepares_state
from fsdplint.verify.rank.reference import measure
from fsdplint.verify.rank.reference.alone import Moved
from fsdplint.verify.rank.reference.layout import Incomparable
from fsdplint.verify.rank.reference.player import Player, Whole, clip
from fsdplint.verify.rank.reference.tape import Parts, Step, Tapes
from fsdplint.verify.rank.registry import Seen


def states(optimizers: Sequence[Optimizer]) -> list[dict[str, Any]]:
    """Return copies of the optimizers' states."""
    return [deepcopy(optimizer.state_dict()) for optimizer in optimizers]


def drift(
    model: Whole, optimizers: Sequence[Optimizer], begun: Sequence[dict[str, Any]], tapes: Tapes
) -> float | None:
    """Return how far all parameters together end from the sharded run's, as relative L2.

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
    """Return the model's own gradients, clipped as the script clips them."""
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


def install(seen: Seen, moved: Moved) -> None:
    """Take over at the first optimizer step: by then the script has made all that takes part."""
    replay = _Replay(seen, moved, Path(seen.recorder.request.replay))
    wrap(Optimizer, "__init__", replay.construct)
    register_optimizer_step_pre_hook(replay.take_over)


class _Replay:
    def __init__(self, seen: Seen, moved: Moved, folder: Path) -> None:
        self._seen, self._moved, self._folder = seen, moved, folder
        self._optimizers: list[Optimizer] = []
        self._playing = False
        self._play_guarded = seen.recorder.probe("reference")(self._play)

    def construct(self, original: Any, optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
        """Run the optimizers' constructor; their order identifies them."""
        self._optimizers.append(optimizer)
        original(optimizer, *args, **kwargs)

    def take_over(self, *_: Any) -> None:
        """Run before every optimizer step; the script's first one becomes the whole replay."""
        if self._playing or prepares_state():
            return
        self._playing = True
        self._play_guarded()
        raise Finished

    def _play(self) -> None:
        try:
            for optimizer in self._optimizers:
                self._moved.follow(optimizer)
            self._follow(Whole(self._seen.models()), Tapes(self._folder))
        except Incomparable as reason:
            self._seen.write(NotCompared(str(reason)))

    def _follow(self, model: Whole, tapes: Tapes) -> None:
        player = Player(model, self._optimizers, len(tapes.ranks))
        begun = states(self._optimizers)
        for step in tapes:
            found = player.play(step)
            for compared in found:
                self._seen.write(compared)
            if any(compared.difference > compared.tolerance for compared in found):
                return  # what comes later follows from it
        distance = drift(model, self._optimizers, begun, tapes)
        if distance is not None:
            self._seen.write(Drifted(distance))
