"""What each step begins with: its inputs, the buffers before that, the optimizers' settings."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils import _pytree as pytree

from fsdplint.verify.events import Fed, Settings
from fsdplint.verify.rank import access
from fsdplint.verify.rank.patch import wrap
from fsdplint.verify.rank.recorder import prepares_state
from fsdplint.verify.rank.registry import Seen
from fsdplint.verify.rank.resume.state import Parts, settings, take_buffers


def _random() -> str:
    """Return a digest of the states of the CPU's generator and of this rank's device's."""
    states = [torch.get_rng_state()]
    if torch.cuda.is_available():
        states.append(torch.cuda.get_rng_state())
    return " ".join(map(access.digest, states))


class Feed:
    """The inputs, buffers and settings on one rank."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._inside = False
        self._step = -1
        self._buffers: Parts = {}
        self._note = seen.recorder.probe("inputs")(self._called)

    def install(self) -> None:
        """Watch the outermost calls of models with units, and steps."""
        wrap(nn.Module, "__call__", self.call)
        look = self._seen.recorder.probe("inputs")(self._set)

        def before(optimizer: Optimizer, *_: Any) -> None:
            if not prepares_state():
                look(optimizer)

        register_optimizer_step_pre_hook(before)

    def buffers(self) -> Parts:
        """Return the buffers as they were before this step's first forward."""
        return self._buffers if self._step == self._seen.steps else take_buffers(self._seen)

    def call(self, original: Any, module: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
        """Run ``nn.Module.__call__``."""
        if self._inside or not module.training or not self._seen.has_units(module):
            return original(module, *args, **kwargs)
        self._note(module, args, kwargs)
        self._inside = True
        try:
            return original(module, *args, **kwargs)
        finally:
            self._inside = False

    def _called(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        self._seen.called(module)
        if self._step != self._seen.steps:
            self._step, self._buffers = self._seen.steps, take_buffers(self._seen)
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        if tensors:
            given = [access.digest(access.local(tensor)) for tensor in tensors]
            self._seen.write(Fed(self._seen.steps, " ".join(given), _random()))

    def _set(self, optimizer: Optimizer) -> None:
        built = self._seen.add_optimizer(optimizer, None)
        found = dict(settings(optimizer))
        self._seen.write(Settings(built.number, built.steps, tuple(found), tuple(found.values())))
