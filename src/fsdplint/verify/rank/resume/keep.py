"""Keep what the first save has to bring back, and the files as they are then."""

from __future__ import annotations

from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

from torch.optim.optimizer import register_optimizer_step_pre_hook

from fsdplint.verify.events import Kept
from fsdplint.verify.rank.recorder import prepares_state
from fsdplint.verify.rank.reference.tape import _save
from fsdplint.verify.rank.registry import Seen
from fsdplint.verify.rank.resume.feed import Feed
from fsdplint.verify.rank.resume.state import take
from fsdplint.verify.request import FILES
from fsdplint.verify.workspace import preserve

_MARKER = "saved"


class Keeper:
    """Keeps this rank's state at the first save after a step.

    All ranks learn of the save by a file: no rank ends its next step before one that saves has
    come back from it, since steps have collectives.
    """

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._folder = Path(seen.recorder.request.keep)
        self._kept = self._saves = False
        self._under_way: list[object] = []
        self._alive: list[object] = []
        self._feed = Feed(seen)

    def install(self) -> None:
        """Watch steps and what goes into the models."""
        look = self._seen.recorder.probe("resume")(self._before_step)
        self._feed.install()
        register_optimizer_step_pre_hook(lambda *_: None if prepares_state() else look())

    def saved(self, result: object = None) -> None:
        """Note that this rank has saved something.

        Args:
            result: of an ``async_save``, which goes on in the background.
        """
        if self._seen.steps > 0 and not self._kept:
            self._saves = True
            self._under_way += [result]
            with suppress(FileExistsError), (self._folder / _MARKER).open("x") as marker:
                marker.write(str(self._seen.steps))

    def due(self, steps: int | None) -> bool:
        """Whether so many steps have been taken behind the save."""
        return self._kept and steps is not None and self._seen.steps >= self._at() + steps

    def finish(self) -> None:
        """Keep the state at the script's end, unless an earlier save has done so."""
        if not self._kept and self._seen.steps > 0:
            self._keep()

    def _at(self) -> int:
        """Return the steps that were done at the save; -1 before it."""
        try:
            return int((self._folder / _MARKER).read_text() or -1)
        except FileNotFoundError:
            return -1

    def _before_step(self) -> None:
        # A script's last save may be in a function that holds what it trains.
        self._alive = [*self._seen.models(), *self._seen.optimizers]
        if not self._kept and 0 < self._at() == self._seen.steps:
            self._keep()
            for result in self._under_way:
                _wait(result)
            if self._saves:
                preserve(self._seen.recorder.root, self._folder / FILES)

    def _keep(self) -> None:
        self._kept = True
        _save(
            take(self._seen, self._feed.buffers()),
            self._folder / f"{self._seen.recorder.rank}.state",
        )
        self._seen.write(Kept(self._seen.steps))


def _wait(result: object) -> None:
    """Wait for what ``async_save`` has returned: a future, or a response that holds one."""
    future = getattr(result, "upload_completion", result)
    if isinstance(future, Future):
        future.exception()
