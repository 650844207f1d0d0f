"""Note FSDP1's functions called on FSDP2 models, and how gradient synchronization is switched."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel

from fsdplint.verify.events import Fsdp1Call, SyncSwitched
from fsdplint.verify.rank import access
from fsdplint.verify.rank.patch import wrap
from fsdplint.verify.rank.recorder import called_by_torch
from fsdplint.verify.rank.registry import Seen

_STATIC = (
    *("summon_full_params", "state_dict_type", "set_state_dict_type", "get_state_dict_type"),
    *("optim_state_dict", "optim_state_dict_to_load", "full_optim_state_dict"),
    *("sharded_optim_state_dict", "shard_full_optim_state_dict", "scatter_full_optim_state_dict"),
    "flatten_sharded_optim_state_dict",
)
"""FSDP1's static methods that do something to a model. `fsdp_modules` only asks whether there is
anything of FSDP1's, and an empty answer is a right one. `rekey_optim_state_dict` goes by the names
of the model's parameters, which FSDP2 keeps."""
_BOUND = ("clip_grad_norm_", "no_sync")
_SWITCHES = ("set_requires_gradient_sync", "set_requires_all_reduce")


def install(seen: Seen) -> None:
    """Wrap FSDP1's methods and FSDP2's switches, and answer for `no_sync` on FSDP2 modules."""
    for name in (*_STATIC, *_BOUND):
        wrap(FullyShardedDataParallel, name, functools.partial(_called, seen, name))
    for name in _STATIC:
        if hasattr(FullyShardedDataParallel, name):
            method = getattr(FullyShardedDataParallel, name)
            setattr(FullyShardedDataParallel, name, staticmethod(method))
    for name in _SWITCHES:
        wrap(FSDPModule, name, functools.partial(_switch, seen, name))
    wrap(FullyShardedDataParallel, "no_sync", functools.partial(_no_sync, seen))
    setattr(FSDPModule, "__getattr__", _missing(seen))  # noqa: B010  -- mypy: a method


def _called(seen: Seen, name: str, original: Any, *args: Any, **kwargs: Any) -> Any:
    if not called_by_torch():
        seen.recorder.probe("fsdp1-calls")(_look)(seen, name, [*args, *kwargs.values()])
    return original(*args, **kwargs)


def _look(seen: Seen, name: str, arguments: list[Any]) -> None:
    model = next((value for value in arguments if isinstance(value, nn.Module)), None)
    if model is not None and {seen.units[u].api for u in seen.inner_units(model)} == {"fsdp2"}:
        seen.write(Fsdp1Call(name, access.class_name(model), seen.place()))


def _switch(seen: Seen, name: str, original: Any, unit: Any, *args: Any, **kwargs: Any) -> None:
    original(unit, *args, **kwargs)
    _note(seen, name, bool(args[0] if args else kwargs[name.removeprefix("set_")]))


@contextmanager
def _no_sync(seen: Seen, original: Any, unit: Any) -> Iterator[None]:
    with original(unit):
        _note(seen, "no_sync", False)
        try:
            yield
        finally:
            _note(seen, "no_sync", True)


def _missing(seen: Seen) -> Callable[[Any, str], Any]:
    """Return what looks up attributes that FSDP2 modules lack, and notes that one is `no_sync`.

    A property of that name would be found by those who look whether a class has it, as Lightning.
    """

    def missing(self: Any, name: str) -> Any:
        if name == "no_sync" and not called_by_torch():
            _note(seen, "no_sync", False)
        return super(FSDPModule, self).__getattr__(name)

    return missing


def _note(seen: Seen, name: str, on: bool) -> None:
    probe = seen.recorder.probe("synchronization")
    probe(lambda: seen.write(SyncSwitched(name, on, seen.place())))()
