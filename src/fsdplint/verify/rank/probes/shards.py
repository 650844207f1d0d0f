"""Note collectives of the script that write into this rank's part of a parameter or its gradient.

FSDP reduces gradients itself, over the ranks that hold the same part. A collective that the script
adds, as programs for replicated models do, may reach ranks that hold other parts.
"""

from __future__ import annotations

import functools
from typing import Any

import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from fsdplint.verify.events import ShardSent
from fsdplint.verify.rank import access
from fsdplint.verify.rank.access import Held, cut
from fsdplint.verify.rank.patch import wrap
from fsdplint.verify.rank.recorder import called_by_torch
from fsdplint.verify.rank.registry import Seen

_COLLECTIVES = ("all_reduce", "broadcast", "reduce")
_MOST_LOOKS = 100
"""Times that all parameters are looked through for a tensor which turns out to be none of them."""


def install(seen: Seen) -> None:
    """Wrap the collectives that write into the tensor which they are given."""
    shards = _Shards(seen)
    for name in _COLLECTIVES:
        wrap(dist, name, functools.partial(shards.send, name))


class _Shards:
    """Where the parts of parameters and gradients lie."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._known: dict[int, tuple[Held, bool]] = {}
        self._looks = 0
        self._written: set[tuple[str, bool, str]] = set()
        self._look = seen.recorder.probe("shards")(self._note)

    def send(self, name: str, original: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Run a collective of the script; torch refuses DTensors themselves."""
        tensor = args[0] if args else kwargs.get("tensor")
        group = kwargs.get("group", args[2] if len(args) > 2 else None)
        plain = isinstance(tensor, Tensor) and not isinstance(tensor, DTensor)
        if plain and not called_by_torch():
            self._look(name, tensor, group)
        return original(*args, **kwargs)

    def _note(self, name: str, tensor: Any, group: Any) -> None:
        found = self._find(tensor.data_ptr())
        if found is None:
            return
        held, of_gradient = found
        slice_of = cut(None, held)
        place = self._seen.place()
        if slice_of is None or (held.name, of_gradient, str(place)) in self._written:
            return
        self._written.add((held.name, of_gradient, str(place)))
        others = {*dist.get_process_group_ranks(group), dist.get_rank()} & {*slice_of.group}
        self._seen.write(
            ShardSent(name, held.name, of_gradient, tuple(sorted(others)), self._seen.steps, place)
        )

    def _find(self, address: int) -> tuple[Held, bool] | None:
        """Return the parameter whose part, or whose gradient's part, lies at an address."""
        known = self._known.get(address)
        if known is not None and address == _address(*known):
            return known
        if self._looks == _MOST_LOOKS:
            return None
        self._known = {
            _address(held, gradient): (held, gradient)
            for held in self._seen.parameters()
            if held.unit is not None
            for gradient in (False, True)
        }
        self._known.pop(0, None)  # parts without elements lie nowhere
        found = self._known.get(address)
        self._looks += found is None
        return found


def _address(held: Held, gradient: bool) -> int:
    tensor = held.parameter.grad if gradient else held.parameter
    return 0 if tensor is None else access.address(tensor)
