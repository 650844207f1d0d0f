"""Record what a run computes and saves; never communicate, since ranks may have diverged."""

from __future__ import annotations

import functools
import inspect
import random
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch.distributed import fsdp
from torch.distributed.checkpoint import state_dict_loader
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from fsdplint.verify.events import Save
from fsdplint.verify.rank import access, generators
from fsdplint.verify.rank.equivalence.contents import Names, numbers, tensors
from fsdplint.verify.rank.equivalence.origin import Origin, shuffle_as_one_process
from fsdplint.verify.rank.equivalence.records import Parts, Saved, Training, copied
from fsdplint.verify.rank.patch import wrap
from fsdplint.verify.rank.recorder import prepares_state
from fsdplint.verify.rank.reference.layout import SHORT, Piece, pieces, short
from fsdplint.verify.rank.registry import Seen

_DEVICES = ("cpu", "cuda")
BUILT, CALLED = "the first optimizer is built", "the first forward begins"
"""Moments at which the states of the generators are recorded."""


class Record:
    """The record of one rank.

    The models are the outermost modules with trainable parameters that are called, sharded or not.
    """

    def __init__(self, seen: Seen) -> None:
        request = seen.recorder.request
        self._seen, self._folder = seen, Path(request.record)
        self._origin = Origin(Path(request.origin), seen.recorder.rank) if request.origin else None
        self._models: list[nn.Module] = []
        self._start: Parts = {}
        self._end: Parts = {}
        self._gradients: Parts = {}
        self._adopted: set[str] = set()
        self._generators: dict[str, dict[str, Any]] = {}
        self._restored: list[str] = []
        self._short = self._loaded = False
        self._calling = self._is_backward = False
        self._saves = count()
        guard = seen.recorder.probe("record")
        self._begin, self._stepped = guard(self._called), guard(self._after_step)
        self._about = guard(self._before_step)
        self._note_save, self._look = guard(self._saved), guard(self._align)

    def install(self) -> None:
        """Watch the program; call it before what ends the script after its last step."""
        _seed(self._seen.recorder.rank)
        wrap(nn.Module, "__call__", self.call)
        # FSDP1 works in its own forward, which a program may call directly.
        wrap(fsdp.FullyShardedDataParallel, "forward", self.call)
        wrap(torch.autograd, "backward", self.backward)
        wrap(torch.autocast, "__enter__", self.autocast)
        wrap(Optimizer, "__init__", self.construct)
        wrap(fsdp, "register_fsdp_forward_method", self.register)
        wrap(nn.Module, "load_state_dict", self.load)
        wrap(state_dict_loader, "load", self.load)
        register_optimizer_step_pre_hook(lambda *_: None if prepares_state() else self._about())
        register_optimizer_step_post_hook(lambda *_: None if prepares_state() else self._stepped())
        if self._seen.recorder.request.ranks == 1:
            shuffle_as_one_process()

    def call(self, original: Any, module: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
        """Run ``nn.Module.__call__``; a call inside another one, or in a backward pass, is not a
        model's."""
        if self._calling or self._is_backward:
            return original(module, *args, **kwargs)
        self._begin(module)
        self._calling = True
        try:
            return original(module, *args, **kwargs)
        finally:
            self._calling = False

    def register(self, original: Any, module: nn.Module, name: str) -> None:
        """Run ``register_fsdp_forward_method``, and count that method's calls as the module's."""
        original(module, name)
        method = getattr(module, name)

        def call(_: nn.Module, *args: Any, **kwargs: Any) -> Any:
            return method(*args, **kwargs)

        @functools.wraps(inspect.unwrap(method))
        def registered(unit: nn.Module, *args: Any, **kwargs: Any) -> Any:
            return self.call(call, unit, *args, **kwargs)

        if isinstance(module, FSDPModule):
            setattr(module, name, MethodType(registered, module))

    def backward(self, original: Any, /, *args: Any, **kwargs: Any) -> None:
        """Run ``torch.autograd.backward``."""
        outer, self._is_backward = self._is_backward, True
        try:
            original(*args, **kwargs)
        finally:
            self._is_backward = outer

    def autocast(self, original: Any, context: Any) -> Any:
        """Enter autocast, and note whether it makes 16-bit numbers."""
        result = original(context)
        on = [device for device in _DEVICES if torch.is_autocast_enabled(device)]
        self._short |= any(torch.get_autocast_dtype(device) in SHORT for device in on)
        return result

    def construct(self, original: Any, optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
        """Build an optimizer; the first one marks the same point in both runs."""
        original(optimizer, *args, **kwargs)
        self._look(BUILT)

    def load(self, original: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Load a model's state, or a checkpoint."""
        self._loaded |= not self._models
        return original(*args, **kwargs)

    def saved(self, save: Save, value: Any) -> None:
        """Record what this rank has saved."""
        if not save.error:
            self._note_save(save, value)

    def finish(self) -> None:
        """Write the record."""
        Training(
            self._start,
            frozenset(self._adopted),
            self._end,
            self._gradients,
            self._generators,
            tuple(self._restored),
            self._short,
            self._loaded,
        ).write(self._folder, self._seen.recorder.rank)

    def _called(self, module: nn.Module) -> None:
        if any(module is known for known in self._models) or not _trains(module):
            return
        if any(module is inner for known in self._models for inner in known.modules()):
            return
        inside = {id(inner) for inner in module.modules()}
        self._models = [known for known in self._models if id(known) not in inside]
        self._models.append(module)
        self._align(CALLED)
        for name, piece in self._pieces(module):
            if name not in self._start:
                if self._origin is not None and self._origin.adopt(name, piece):
                    self._adopted.add(name)
                self._start[name] = [(piece.region, copied(name, piece.value()))]

    def _align(self, moment: str) -> None:
        """Record the generators' states the first time; with an origin, make them its."""
        if moment in self._generators:
            return
        self._generators[moment] = generators.take(torch.cuda.is_available())
        if self._origin is not None and self._origin.restore(moment, self._generators[moment]):
            self._restored.append(moment)

    def _before_step(self) -> None:
        for model in self._models:
            for name, piece in self._pieces(model):
                if (gradient := piece.gradient()) is not None:
                    size = copied(name, gradient).abs().reshape(-1)
                    _, known = self._gradients.get(name, [(piece.region, size)])[0]
                    self._gradients[name] = [(piece.region, torch.maximum(known, size))]

    def _after_step(self) -> None:
        # FSDP2 knows the types it computes in only from its first forward on.
        self._short = self._short or any(map(short, self._models))
        self._end = {
            name: [(piece.region, copied(name, piece.value()))]
            for model in self._models
            for name, piece in self._pieces(model)
        }

    def _pieces(self, model: nn.Module) -> Iterator[tuple[str, Piece]]:
        """Yield a model's parameters by the names that an unsharded model gives them; those of
        further models begin with the model's number."""
        number = self._models.index(model)
        of = f"model {number + 1}: " if number else ""
        wrappers = _wrappers(model)
        for piece in pieces(model, tensor_parallel=True):
            yield of + _unwrapped(piece.name, wrappers), piece

    def _saved(self, save: Save, value: Any) -> None:
        found = [pair for model in self._models for pair in self._pieces(model)]
        others = [name for model in self._models for name in _tied_and_buffers(model)]
        names = Names(
            [*(name for name, _ in found), *others],
            {id(p.parameter): name for name, p in found if p.parameter is not p.flat},
            list(self._seen.optimizers),
        )
        Saved(
            save.path,
            save.writer,
            save.distributed,
            save.step,
            tensors(value, names),
            dict(numbers(value)),
        ).write(self._folder, self._seen.recorder.rank, next(self._saves))


def _seed(rank: int) -> None:
    """Start generators that start from the time from the same numbers in every run; PyTorch's own
    start from constants."""
    random.seed(rank)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(rank)


def _trains(module: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in module.parameters())


def _wrappers(model: nn.Module) -> list[str]:
    """Return the names of data parallel wrappers in a model, outer ones first."""
    return [
        access.clean(f"{name}.")
        for name, module in model.named_modules()
        if isinstance(module, DistributedDataParallel | nn.DataParallel)
    ]


def _unwrapped(name: str, wrappers: list[str]) -> str:
    """Take the names of wrappers out of a parameter's name, inner ones first."""
    for wrapper in reversed(wrappers):
        at = wrapper.removeprefix(".")
        if name.startswith(f"{at}module."):
            name = at + name.removeprefix(f"{at}module.")
    return name


def _tied_and_buffers(model: nn.Module) -> Iterator[str]:
    """Yield all names of tied parameters, which count once as parameters, and those of buffers."""
    every = list(nn.Module.named_parameters(model, remove_duplicate=False))
    uses = Counter(id(parameter) for _, parameter in every)
    tied = (name for name, parameter in every if uses[id(parameter)] > 1)
    wrappers = _wrappers(model)
    for name in (*tied, *(name for name, _ in nn.Module.named_buffers(model))):
        yield _unwrapped(access.clean(name), wrappers)
