"""Notes which module is called from outside every other: the model as the script knows it."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

from fsdplint.verify.events import Forward
from fsdplint.verify.rank import access
from fsdplint.verify.rank.seen import Seen


def install(seen: Seen) -> None:
    """Counts the depth of module calls through torch's public global hooks."""
    depth = _Depth(seen)
    register_module_forward_pre_hook(depth.enter)
    register_module_forward_hook(depth.leave, always_call=True)


class _Depth:
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
        if id(module) in self._known or not any(True for _ in self._seen.inner_units(module)):
            return
        self._known.add(id(module))
        self._seen.called(module)
        place = self._seen.recorder.place()
        self._seen.recorder.write(Forward(access.class_name(module), place))
