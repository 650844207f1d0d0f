"""Note which modules are called, and forwards of FSDP2 units that bypass the unit's hooks."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from fsdplint.verify.events import Bypass, Forward
from fsdplint.verify.rank import access
from fsdplint.verify.rank.patch import wrap
from fsdplint.verify.rank.registry import Seen


def install(seen: Seen) -> None:
    """Follow module calls, and units that the script gathers by hand and may then call directly."""

    def unshard(original: Any, unit: Any, /, *args: Any, **kwargs: Any) -> Any:
        seen.gathered.add(unit)
        return original(unit, *args, **kwargs)

    def reshard(original: Any, unit: Any, /, *args: Any, **kwargs: Any) -> Any:
        seen.gathered.discard(unit)
        return original(unit, *args, **kwargs)

    wrap(FSDPModule, "unshard", unshard)
    wrap(FSDPModule, "reshard", reshard)
    depth = _Depth(seen)
    register_module_forward_pre_hook(depth.enter)
    register_module_forward_hook(depth.leave, always_call=True)


class _Depth:
    """The depth of module calls, counted by torch's public global hooks.

    The outermost module that is called is the model as the script knows it.
    """

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._depth = 0
        self._known: set[int] = set()
        self._note = seen.recorder.probe("calls")(self._outermost)

    def enter(self, module: nn.Module, _: Any) -> None:
        self._depth += 1
        if self._depth == 1:
            self._note(module)

    def leave(self, *_: Any) -> None:
        self._depth = max(0, self._depth - 1)

    def _outermost(self, module: nn.Module) -> None:
        if id(module) in self._known or not self._seen.has_units(module):
            return
        self._known.add(id(module))
        self._seen.called(module)
        self._seen.write(Forward(access.class_name(module), self._seen.place()))


def watch_forward(seen: Seen, cls: type[Any]) -> None:
    """Wrap ``forward`` of the class that ``fully_shard`` makes (``FSDP<Name>``), once."""
    if "_fsdplint_forward" in vars(cls):
        return
    cls._fsdplint_forward = cls.forward
    look = seen.recorder.probe("forward")(_look)

    def forward(original: Any, unit: Any, /, *args: Any, **kwargs: Any) -> Any:
        look(seen, unit)
        return original(unit, *args, **kwargs)

    wrap(cls, "forward", forward)


def _look(seen: Seen, module: Any) -> None:
    if module in seen.units and module not in seen.gathered and not access.in_hooks(module):
        path = seen.path(module)
        name = access.clean(path[1]) if path else ""
        cls = access.class_name(module)
        seen.write(Bypass(name, cls, "fsdp2", "forward", seen.place()))
