"""Note collectives of the script that write into this rank's part of a parameter or its gradient.

FSDP reduces gradients itself, over the ranks that hold the same part. A collective that the script
adds, as programs for replicated models do, may reach ranks that hold other parts.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from weakref import ref

import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from fsdplint.verify.events import ShardSent
from fsdplint.verify.rank import access
from fsdplint.verify.rank.access import cut
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
        bind = inspect.signature(getattr(dist, name)).bind
        wrap(dist, name, functools.partial(shards.send, name, bind))


@dataclass(frozen=True)
class _Part:
    """A rank's part of a parameter, or of its gradient; it keeps no model alive.

    Attributes:
        owner: the module that the parameter is registered in, as `key`.
        group: the ranks whose parts make one copy.
    """

    name: str
    of_gradient: bool
    owner: ref[nn.Module]
    key: str
    group: tuple[int, ...]

    def address(self) -> int:
        """Return where it lies now, or 0."""
        owner = self.owner()
        parameter = None if owner is None else owner._parameters.get(self.key)
        return 0 if parameter is None else _address(parameter, self.of_gradient)


class _Shards:
    """Where the parts of parameters and gradients lie."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._known: dict[int, _Part] = {}
        self._looks = 0
        self._written: set[tuple[str, bool, str]] = set()
        self._look = seen.recorder.probe("shards")(self._note)

    def send(self, name: str, bind: Any, original: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Run a collective of the script; torch refuses DTensors themselves."""
        if not called_by_torch():
            self._look(name, bind, args, kwargs)
        return original(*args, **kwargs)

    def _note(self, name: str, bind: Any, args: Any, kwargs: Any) -> None:
        given = bind(*args, **kwargs).arguments
        tensor = given.get("tensor")
        if not isinstance(tensor, Tensor) or isinstance(tensor, DTensor):
            return
        part, place = self._find(tensor.data_ptr()), self._seen.place()
        if part is None or (part.name, part.of_gradient, str(place)) in self._written:
            return
        self._written.add((part.name, part.of_gradient, str(place)))
        group = given.get("group") or dist.group.WORLD  # torch 2.6 knows no None
        members = {*dist.get_process_group_ranks(group), dist.get_rank()}
        ranks = tuple(sorted(members & {*part.group}))
        self._seen.write(
            ShardSent(name, part.name, part.of_gradient, ranks, self._seen.steps, place)
        )

    def _find(self, address: int) -> _Part | None:
        """Return the part that lies at an address."""
        known = self._known.get(address)
        if known is not None and address == known.address():
            return known
        if self._looks == _MOST_LOOKS:
            return None
        self._known = {part.address(): part for part in self._parts()}
        self._known.pop(0, None)  # parts without elements lie nowhere
        found = self._known.get(address)
        self._looks += found is None
        return found

    def _parts(self) -> Iterator[_Part]:
        """Yield the parts of all units that have not gathered them, as FSDP1 does on request."""
        gathered: dict[nn.Module, bool] = {}
        for held in self._seen.parameters():
            if held.unit is None or (slice_of := cut(None, held)) is None:
                continue
            if held.unit not in gathered:
                gathered[held.unit] = access.is_at_work(held.unit)
            if gathered[held.unit]:
                continue
            for gradient in (False, True):
                yield _Part(held.name, gradient, ref(held.owner), held.key, slice_of.group)


def _address(parameter: nn.Parameter, gradient: bool) -> int:
    tensor = parameter.grad if gradient else parameter
    return 0 if tensor is None else access.address(tensor)
