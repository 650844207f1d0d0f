"""Takes the place of the training loop in a process of one, and plays all ranks' tapes back."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from fsdplint.verify.events import Drifted, NotCompared
from fsdplint.verify.rank.callers import prepares_state
from fsdplint.verify.rank.patch import wrap_method
from fsdplint.verify.rank.probes.steps import Finished
from fsdplint.verify.rank.reference.alone import Moved
from fsdplint.verify.rank.reference.free import drift, states
from fsdplint.verify.rank.reference.layout import Incomparable
from fsdplint.verify.rank.reference.player import Player
from fsdplint.verify.rank.reference.step import Tapes
from fsdplint.verify.rank.reference.whole import Whole
from fsdplint.verify.rank.seen import Seen


def install(seen: Seen, moved: Moved) -> None:
    """Takes over at the first optimizer step: by then the script has made all that takes part."""
    replay = _Replay(seen, moved, Path(seen.recorder.request.replay))
    wrap_method(Optimizer, "__init__", replay.watch_optimizers)
    register_optimizer_step_pre_hook(replay.take_over)


class _Replay:
    def __init__(self, seen: Seen, moved: Moved, folder: Path) -> None:
        self._seen, self._moved, self._folder = seen, moved, folder
        self._optimizers: list[Optimizer] = []
        self._playing = False
        self._play_guarded = seen.recorder.probe("reference")(self._play)

    def watch_optimizers(self, original: Callable[..., None]) -> Callable[..., None]:
        """Wraps the optimizers' constructor: their order tells which is which."""

        @functools.wraps(original)
        def construct(optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
            self._optimizers.append(optimizer)
            original(optimizer, *args, **kwargs)

        return construct

    def take_over(self, *_: Any) -> None:
        """Runs before every optimizer step; the script's first one becomes the whole replay."""
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
            self._seen.recorder.write(NotCompared(str(reason)))

    def _follow(self, model: Whole, tapes: Tapes) -> None:
        player = Player(model, self._optimizers, len(tapes.ranks))
        begun = states(self._optimizers)
        for step in tapes:
            found = player.play(step)
            for compared in found:
                self._seen.recorder.write(compared)
            if any(compared.difference > compared.tolerance for compared in found):
                return  # what comes later follows from it
        distance = drift(model, self._optimizers, begun, tapes)
        if distance is not None:
            self._seen.recorder.write(Drifted(distance))
