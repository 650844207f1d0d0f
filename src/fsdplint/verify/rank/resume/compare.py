"""Compare the state of a resumed run with the state at the save."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from fsdplint.verify.events import Restored, Resumed
from fsdplint.verify.kept import chosen, state_files
from fsdplint.verify.rank.recorder import prepares_state
from fsdplint.verify.rank.reference.measure import distance, norm
from fsdplint.verify.rank.registry import Seen
from fsdplint.verify.rank.resume.feed import Feed
from fsdplint.verify.rank.resume.state import KINDS, STATE, Entry, Taken, is_held, take, wholes
from fsdplint.verify.rank.unwatched import torch_load

_MOST = 5
"""Names that are written down of each kind."""
EXACT = 1e-6
"""Relative L2 up to which an entry counts as brought back: a save does not round."""


class Comparison:
    """One comparison, before the first step or at the end of a script that takes none."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._folder = Path(seen.recorder.request.resumed)
        self._done = False
        self._feed = Feed(seen)

    def install(self) -> None:
        """Watch for the first step."""
        look = self._seen.recorder.probe("resume")(self.finish)
        self._feed.install()
        register_optimizer_step_pre_hook(lambda *_: None if prepares_state() else look())

    def finish(self) -> None:
        """Compare what the script still has, unless it is done."""
        step = chosen(self._folder)
        if self._done or step is None or not self._seen.models():
            return
        self._done = True
        ranks: list[Taken] = [
            torch_load(file, weights_only=False, mmap=True)
            for file in state_files(self._folder, step)
        ]
        mine = take(self._seen, self._feed.buffers())
        self._seen.write(Resumed(mine.unread[:_MOST]))
        wanted = list(dict.fromkeys(entry for taken in ranks for entry in taken.parts))
        for kind in KINDS:
            entries = [entry for entry in wanted if entry[0] == kind]
            if entries and (kind != STATE or self._seen.optimizers):
                self._seen.write(_restored(kind, entries, ranks, mine))


def _restored(kind: str, entries: list[Entry], ranks: list[Taken], mine: Taken) -> Restored:
    """Compare all entries of a kind."""
    missing = [entry for entry in entries if entry not in mine.parts and is_held(entry, mine)]
    apart: dict[str, float] = {}
    for entry in entries:
        if entry in mine.parts:
            off = min(_off(was, entry, mine) for was in wholes(ranks, entry))
            if off > EXACT:
                apart[entry[1]] = off
    worst = sorted(apart, key=lambda name: -apart[name])
    return Restored(
        kind,
        len(entries),
        len(missing),
        tuple(name for _, name in missing[:_MOST]),
        len(apart),
        tuple(worst[:_MOST]),
        max(apart.values(), default=0.0),
    )


def _off(whole: Tensor, entry: Entry, mine: Taken) -> float:
    """Return how far this rank's part is from what it was, as a fraction of that."""
    region, part = mine.parts[entry]
    if tuple(whole.shape) != region.shape:
        return float("inf")
    was = region.of(whole)
    off = distance(was, part)
    scale = norm(was)
    return 0.0 if off == 0.0 else off / scale if scale > 0.0 else float("inf")
