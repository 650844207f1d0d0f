"""Notes FSDP1's functions called on FSDP2 models, and how gradient synchronization is switched."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

from fsdplint.verify.events import Fsdp1Call, SyncSwitched
from fsdplint.verify.rank import access
from fsdplint.verify.rank.callers import torchs_own
from fsdplint.verify.rank.patch import wrap_method
from fsdplint.verify.rank.seen import Seen

_STATIC = (
    *("summon_full_params", "state_dict_type", "set_state_dict_type", "get_state_dict_type"),
    *("optim_state_dict", "optim_state_dict_to_load", "full_optim_state_dict"),
    *("sharded_optim_state_dict", "shard_full_optim_state_dict", "scatter_full_optim_state_dict"),
    *("flatten_sharded_optim_state_dict", "rekey_optim_state_dict"),
)
"""FSDP1's static methods that do something to a model. `fsdp_modules` only asks whether there is
anything of FSDP1's, and an empty answer is a right one."""
_BOUND = ("clip_grad_norm_", "no_sync")
_SWITCHES = ("set_requires_gradient_sync", "set_requires_all_reduce")


def install(seen: Seen) -> None:
    """Wraps FSDP1's methods and FSDP2's switches, and answers for `no_sync` on FSDP2 modules."""
    for name in _STATIC:
        if hasattr(FullyShardedDataParallel, name):
            method = getattr(FullyShardedDataParallel, name)
            setattr(FullyShardedDataParallel, name, staticmethod(_noted(seen, name, method)))
    for name in _BOUND:
        wrap_method(FullyShardedDataParallel, name, functools.partial(_noted, seen, name))
    for name in _SWITCHES:
        wrap_method(FSDPModule, name, functools.partial(_switch, seen, name))
    wrap_method(FullyShardedDataParallel, "no_sync", lambda method: _context(seen, method))
    setattr(FSDPModule, "no_sync", _missing(seen))  # noqa: B010  -- FSDP2 has no such attribute


def _noted(seen: Seen, name: str, original: Any) -> Any:
    look = seen.recorder.probe("fsdp1-calls")(_look)

    @functools.wraps(original)
    def method(*args: Any, **kwargs: Any) -> Any:
        if not torchs_own():
            look(seen, name, [*args, *kwargs.values()])
        return original(*args, **kwargs)

    return method


def _look(seen: Seen, name: str, arguments: list[Any]) -> None:
    model = next((value for value in arguments if isinstance(value, nn.Module)), None)
    if model is None:
        return
    apis = {seen.units[unit].api for unit in seen.inner_units(model)}
    if apis == {"fsdp2"}:
        cls = access.class_name(model)
        seen.recorder.write(Fsdp1Call(name, cls, seen.recorder.place()))


def _switch(seen: Seen, name: str, original: Any) -> Any:
    note = seen.recorder.probe("synchronization")(_write)

    @functools.wraps(original)
    def switch(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        note(seen, name, bool(args[0] if args else kwargs[name.removeprefix("set_")]))

    return switch


def _context(seen: Seen, original: Any) -> Any:
    note = seen.recorder.probe("synchronization")(_write)

    @contextmanager
    @functools.wraps(original)
    def no_sync(self: Any) -> Iterator[None]:
        with original(self):
            note(seen, "no_sync", False)
            try:
                yield
            finally:
                note(seen, "no_sync", True)

    return no_sync


def _missing(seen: Seen) -> property:
    """`no_sync` of an FSDP2 module: its class's own, or none, as without this property.

    Where a property raises AttributeError, Python goes on to `nn.Module.__getattr__`, whose error
    is the one the script has always had.
    """
    note = seen.recorder.probe("synchronization")(_write)

    def no_sync(self: Any) -> Any:
        try:
            return super(FSDPModule, self).no_sync
        except AttributeError:
            if not torchs_own():
                note(seen, "no_sync", False, raised=True)
            raise

    return property(no_sync)


def _write(seen: Seen, name: str, on: bool, raised: bool = False) -> None:
    seen.recorder.write(SyncSwitched(name, on, raised, seen.recorder.place()))
