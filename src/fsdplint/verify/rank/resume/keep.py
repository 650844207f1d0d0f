"""Record the state at a save, and the files at that moment."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from threading import current_thread, main_thread

from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from fsdplint.verify.events import Kept, Save
from fsdplint.verify.kept import chosen, files, mark, state_file
from fsdplint.verify.rank.recorder import prepares_state
from fsdplint.verify.rank.registry import Seen
from fsdplint.verify.rank.resume.feed import Feed
from fsdplint.verify.rank.resume.state import Taken, digests, take, take_buffers
from fsdplint.verify.rank.unwatched import torch_save
from fsdplint.verify.workspace import preserve


class Keeper:
    """This rank's state at the first save after a step, or the first with an optimizer's state.

    A file announces a save to all ranks: no rank ends its next step before the saving rank returns,
    since steps have collectives. A rank that saves records its state at that moment; the others
    record theirs before the next step, or at the end if nothing has changed since the last step.
    """

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._folder = Path(seen.recorder.request.keep)
        self._at_save: Taken | None = None
        self._whole = False
        self._under_way: list[object] = []
        self._alive: list[object] = []
        self._stepped: tuple[str, ...] | None = None
        self._kept = 0
        self._feed = Feed(seen)

    def install(self) -> None:
        """Watch steps and what goes into the models."""
        before = self._seen.recorder.probe("resume")(self._before_step)
        after = self._seen.recorder.probe("resume")(self._after_step)
        self._feed.install()
        register_optimizer_step_pre_hook(lambda *_: None if prepares_state() else before())
        register_optimizer_step_post_hook(lambda *_: None if prepares_state() else after())

    def saved(self, save: Save, result: object = None) -> None:
        """Note that this rank has saved something.

        What a thread of the script's own writes may be older.

        Args:
            result: of an ``async_save``, which goes on in the background.
        """
        if save.step == 0 or not save.of_training or current_thread() is not main_thread():
            return
        mark(self._folder, save.step, save.of_optimizer)
        if chosen(self._folder) != save.step:
            return
        self._under_way.append(result)
        # Of several at one step, the first with an optimizer's state is what a run resumes from.
        first = self._at_save is None or self._at_save.steps != save.step
        if first or (save.of_optimizer and not self._whole):
            self._at_save = take(self._seen, take_buffers(self._seen))
            self._whole = save.of_optimizer

    def due(self, steps: int | None) -> bool:
        """True if this many steps have been taken after the save."""
        return bool(self._kept and steps is not None and self._seen.steps >= self._kept + steps)

    def finish(self) -> None:
        """Keep the state at the script's end, if it is that of the last step."""
        # Another rank may not have come to its save yet.
        step = chosen(self._folder) or self._seen.steps
        if step != self._seen.steps or step in (0, self._kept):
            return
        if self._at_save is not None or self._stepped == digests(self._seen):
            self._keep(step)

    def _after_step(self) -> None:
        # A script's last save may be in a function that holds what it trains.
        self._alive = [*self._seen.models(), *self._seen.optimizers]
        self._stepped = digests(self._seen)

    def _before_step(self) -> None:
        step = chosen(self._folder)
        if step is not None and step == self._seen.steps != self._kept:
            saves = self._at_save is not None
            self._keep(step)
            for result in self._under_way:
                _wait(result)
            if saves:
                preserve(self._seen.recorder.root, files(self._folder, step))
            self._under_way = []

    def _keep(self, step: int) -> None:
        taken = self._at_save
        if taken is None or taken.steps != step:
            taken = take(self._seen, self._feed.buffers())
        torch_save(taken, state_file(self._folder, step, self._seen.recorder.rank))
        self._kept, self._at_save = step, None
        self._seen.write(Kept(step))


def _wait(result: object) -> None:
    """Wait for what ``async_save`` has returned: a future, or a response that holds one."""
    future = getattr(result, "upload_completion", result)
    if isinstance(future, Future):
        future.exception()
