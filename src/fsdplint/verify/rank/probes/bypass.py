"""Notes forwards of FSDP2 units that begin without the unit's hooks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch.distributed.fsdp import FSDPModule

from fsdplint.verify.events import Bypass
from fsdplint.verify.rank import access
from fsdplint.verify.rank.patch import wrap_method
from fsdplint.verify.rank.seen import Seen


def install(seen: Seen) -> None:
    """Notes units that the script gathers by hand, whose forward may be called directly."""
    wrap_method(FSDPModule, "unshard", lambda unshard: _switch(unshard, seen.gathered.add))
    wrap_method(FSDPModule, "reshard", lambda reshard: _switch(reshard, seen.gathered.discard))


def _switch(original: Any, note: Callable[[Any], None]) -> Any:
    @functools.wraps(original)
    def switch(self: Any, *args: Any, **kwargs: Any) -> Any:
        note(self)
        return original(self, *args, **kwargs)

    return switch


def watch(seen: Seen, cls: type[Any]) -> None:
    """Wraps ``forward`` of the class that ``fully_shard`` makes (``FSDP<Name>``), once."""
    if "_fsdplint_forward" in vars(cls):
        return
    cls._fsdplint_forward = cls.forward
    cls.forward = _wrapped(seen, cls.forward)


def _wrapped(seen: Seen, original: Any) -> Any:
    look = seen.recorder.probe("forward")(_look)

    @functools.wraps(original)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        look(seen, self)
        return original(self, *args, **kwargs)

    return forward


def _look(seen: Seen, module: Any) -> None:
    if module not in seen.units or module in seen.gathered or access.in_hooks(module):
        return
    name = access.class_name(module)
    seen.recorder.write(
        Bypass(_name(seen, module), name, "fsdp2", "forward", seen.recorder.place())
    )


def _name(seen: Seen, module: Any) -> str:
    """Returns the unit's name in its model; empty for the model itself."""
    for model in seen.models():
        for name, inner in model.named_modules():
            if inner is module:
                return access.clean(name)
    return ""
