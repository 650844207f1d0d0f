"""Note the batches that loaders give to the script."""

from __future__ import annotations

from itertools import islice
from typing import Any

from torch.utils.data.dataloader import _BaseDataLoaderIter

from fsdplint.verify.events import Drawn
from fsdplint.verify.rank import access
from fsdplint.verify.rank.patch import wrap
from fsdplint.verify.rank.registry import Seen
from fsdplint.verify.rank.states import leaves

_MOST = 50
"""Batches to record: those of the first steps show whether ranks share them."""
_TENSORS = 20
_LARGEST = 2**26
"""Elements of a tensor up to which it is read."""


def install(seen: Seen) -> None:
    """Wrap the ``__next__`` of what iterates over a ``DataLoader``."""
    left = [_MOST]

    def note(batch: Any) -> None:
        parts = [access.local(leaf.tensor) for leaf in islice(leaves(batch), _TENSORS)]
        read = [part for part in parts if 0 < part.numel() <= _LARGEST and not part.is_meta]
        if read:
            left[0] -= 1
            seen.write(Drawn(" ".join(map(access.digest, read)), seen.place()))

    noted = seen.recorder.probe("batches")(note)

    def draw(original: Any, iterator: Any) -> Any:
        batch = original(iterator)
        if left[0]:
            noted(batch)
        return batch

    wrap(_BaseDataLoaderIter, "__next__", draw)
