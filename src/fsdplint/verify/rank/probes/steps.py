"""Note each backward and each optimizer step: what was reduced, what moved, who holds what."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any
from weakref import ref

import torch
from torch import Tensor
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from fsdplint.verify.events import Backward, Change, Step
from fsdplint.verify.rank import access
from fsdplint.verify.rank.access import Held
from fsdplint.verify.rank.patch import wrap
from fsdplint.verify.rank.recorder import prepares_state
from fsdplint.verify.rank.registry import OptimizerSeen, Seen
from fsdplint.verify.rank.resume.keep import Keeper
from fsdplint.verify.rank.snapshot import Snapshots

_SHOWS = 100.0
"""How far above a type's resolution a step lies that has to show."""


class Finished(BaseException):
    """The end of the script after the requested steps; no handler of the user's catches it."""


def install(seen: Seen, snapshots: Snapshots, keeper: Keeper | None = None) -> None:
    """Wrap ``torch.autograd.backward`` and the optimizers' constructor; hook their steps."""
    steps = _Steps(seen, snapshots, keeper)
    note = seen.recorder.probe("optimizer")(seen.add_optimizer)

    def construct(original: Any, optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
        note(optimizer, seen.place())
        original(optimizer, *args, **kwargs)

    wrap(Optimizer, "__init__", construct)
    wrap(torch.autograd, "backward", steps.backward)
    wrap(torch.amp.GradScaler, "step", steps.scale)
    wrap(torch.amp.GradScaler, "scale", steps.multiply)
    wrap(ShardedGradScaler, "scale", steps.multiply)
    register_optimizer_step_pre_hook(steps.before)
    register_optimizer_step_post_hook(steps.after)


@dataclass(frozen=True)
class _Before:
    """One parameter before a step: a copy of this rank's part, and what its gradient was."""

    model: int
    held: Held
    part: Tensor
    gradient: str
    largest: float
    reduced: bool | None


class _Steps:
    """All optimizers of a rank."""

    def __init__(self, seen: Seen, snapshots: Snapshots, keeper: Keeper | None) -> None:
        self._seen, self._snapshots, self._keeper = seen, snapshots, keeper
        self._backwards = self._reduced = self._done = 0
        self._gradients: dict[int, tuple[Tensor, int]] = {}
        self._before: list[_Before] = []
        self._began = time.perf_counter()
        self._nested = False
        self._stepping: Optimizer | None = None
        self._scaled: tuple[ref[Tensor], float] | None = None
        guard = seen.recorder.probe
        self._look, self._compare = guard("optimizer")(self._remember), guard("step")(self._write)
        self._look_again = guard("optimizer")(self._read_gradients)
        self._note = guard("gradients")(self._backward_done)
        self._note_scale = guard("gradients")(self._multiplied)

    def backward(self, original: Any, tensors: Any, *args: Any, **kwargs: Any) -> None:
        """Run ``torch.autograd.backward``, and note the outermost one."""
        if self._nested:  # reentrant activation checkpointing
            original(tensors, *args, **kwargs)
            return
        self._nested = True
        try:
            original(tensors, *args, **kwargs)
        finally:
            self._nested = False
        self._note(tensors)

    def _backward_done(self, tensors: Any) -> None:
        """Note the loss and whether this backward left any reduced gradient behind."""
        loss = tensors if isinstance(tensors, Tensor) else next(iter(tensors), None)
        reduced = self._new_gradients()
        self._backwards += 1
        self._reduced += reduced
        if loss is None or loss.numel() != 1:
            return
        value = float(access.local(loss))
        self._seen.write(
            Backward(
                self._seen.steps,
                repr(value),
                value - value == 0.0,
                reduced,
                self._seen.place(),
                self._seen.scaled,
                self._scale_of(loss),
            )
        )

    def multiply(self, original: Any, scaler: Any, outputs: Any) -> Any:
        """Run ``GradScaler.scale``, and remember by how much it multiplies a loss."""
        result = original(scaler, outputs)
        self._note_scale(scaler, result)
        return result

    def _multiplied(self, scaler: Any, result: Any) -> None:
        if isinstance(result, Tensor):
            self._scaled = ref(result), float(scaler.get_scale())

    def _scale_of(self, loss: Tensor) -> float:
        known = self._scaled is not None and self._scaled[0]() is loss
        return self._scaled[1] if self._scaled is not None and known else 1.0

    def _new_gradients(self) -> bool:
        """True if a sharded parameter has a gradient of its size that it did not have before.

        The gradients seen are kept until the next look, so that no other object takes their id.
        """
        now: dict[int, tuple[Tensor, int]] = {}
        sharded = [held for held in self._seen.parameters() if held.unit is not None]
        unreduced = {
            unit
            for unit in {held.unit for held in sharded}
            if access.unsharded_gradients(unit) or access.defers_reduction(unit)
        }
        for held in sharded:
            gradient = held.parameter.grad
            if gradient is None or held.unit in unreduced:
                continue
            if gradient.shape == held.parameter.shape:
                now[id(held.parameter)] = (gradient, access.local(gradient)._version)
        changed = any(
            key not in self._gradients
            or self._gradients[key][0] is not gradient
            or self._gradients[key][1] != version
            for key, (gradient, version) in now.items()
        )
        self._gradients = now
        return changed

    def scale(self, original: Any, scaler: Any, optimizer: Any, /, *args: Any, **kw: Any) -> Any:
        """Run ``GradScaler.step``: gradients of a step that it skips are no part of the next."""
        before = self._done
        result = original(scaler, optimizer, *args, **kw)
        if self._done == before:
            self._backwards = self._reduced = 0
        return result

    def before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        """Run before every optimizer step; gradients of one with a closure, which may hold the
        backward, are read behind the closure's first call."""
        if prepares_state() or self._is_inner(optimizer):
            return None
        self._stepping = optimizer
        self._look()
        given = kwargs.get("closure", args[1] if len(args) > 1 else None)  # behind the optimizer
        if not callable(given):
            return None
        looked: list[bool] = []

        def closure() -> Any:
            result = given()
            if not looked:
                looked.append(True)
                self._look_again()
            return result

        if "closure" in kwargs:
            return args, kwargs | {"closure": closure}
        return (args[0], closure, *args[2:]), kwargs

    def _remember(self) -> None:
        self._snapshots.take()
        self._before = [
            _Before(number, held, access.local(held.parameter).clone(), *_gradient(held))
            for number, model in self._snapshots.models()
            for held in access.parameters(model)
            if held.parameter.requires_grad
        ]

    def _read_gradients(self) -> None:
        self._before = [
            _Before(before.model, before.held, before.part, *_gradient(before.held))
            for before in self._before
        ]

    def _is_inner(self, optimizer: Optimizer) -> bool:
        """True if another optimizer makes this step as a part of its own."""
        return self._stepping not in (None, optimizer)

    def after(self, optimizer: Optimizer, *_: Any) -> None:
        """Run after every optimizer step; end the script where it was the last one wanted."""
        if prepares_state() or self._is_inner(optimizer):
            return
        self._stepping = None
        seen = self._seen.add_optimizer(optimizer, None)
        seen.steps += 1
        self._done += 1
        self._compare(optimizer, seen)
        self._backwards = self._reduced = 0
        self._before = []
        if self._is_last():
            raise Finished

    def _is_last(self) -> bool:
        """True if the requested steps are done, counted from the start or from the save."""
        wanted = self._seen.recorder.request.steps
        if self._keeper is not None:
            return self._keeper.due(wanted)
        return wanted is not None and self._seen.steps >= wanted

    def _write(self, optimizer: Optimizer, seen: OptimizerSeen) -> None:
        """Write down a step, with what it did to each parameter."""
        # A scaler hands the scale to optimizers that skip a step by themselves, as fused ones do.
        scaled = getattr(optimizer, "grad_scale", None) is not None
        rates = {
            id(p): 0.0 if scaled else float(group["lr"]) if "lr" in group else 1.0
            for group in optimizer.param_groups
            for p in group["params"]
        }
        now = time.perf_counter()
        changes = [_change(before, rates) for before in self._before]
        for before, change in zip(self._before, changes, strict=True):
            if change.held:
                self._seen.stepped[access.address(before.held.parameter)] = change.digest
        self._seen.write(
            Step(
                seen.steps,
                seen.number,
                self._backwards,
                self._reduced,
                tuple(changes),
                now - self._began,
                self._seen.place(),
            )
        )
        self._snapshots.renew()
        self._began = time.perf_counter()


def _gradient(held: Held) -> tuple[str, float, bool | None]:
    """Return what a parameter's gradient is on this rank, its largest magnitude, and whether it
    has been reduced."""
    gradient = held.parameter.grad
    waiting = access.unreduced(held.parameter, held.unit) if held.unit is not None else None
    reduced = None if waiting is None else not waiting
    if gradient is None:
        return "none", 0.0, reduced
    largest = _largest(access.local(gradient))
    if not math.isfinite(largest):
        return "infinite", largest, reduced
    return ("finite" if largest else "zero"), largest, reduced


def _largest(part: Tensor) -> float:
    return float(torch.linalg.vector_norm(part, math.inf)) if part.numel() else 0.0


def _due(before: _Before, rate: float) -> bool:
    """True if any optimizer's step at this rate shows: those that normalize gradients move by
    about the rate, plain ones by the rate times the gradient."""
    least = abs(rate) * min(1.0, before.largest)
    return least > _SHOWS * torch.finfo(before.part.dtype).eps * _largest(before.part)


def _change(before: _Before, rates: dict[int, float]) -> Change:
    """Compare a parameter with what it was before the step."""
    part = access.local(before.held.parameter)
    rate = rates.get(id(before.held.parameter))
    same = part.shape == before.part.shape and torch.equal(part, before.part)
    return Change(
        before.held.name,
        before.model,
        before.gradient,
        before.reduced,
        not same,
        access.digest(part),
        rate is not None,
        bool(rate),
        bool(rate) and same and _due(before, rate or 0.0),
        *_coarse(before, part),
    )


def _coarse(before: _Before, part: Tensor) -> tuple[int, int]:
    """Return how many elements of a type of two bytes have a gradient, and how many of them a
    step has left as they were."""
    gradient = before.held.parameter.grad
    low = part.is_floating_point() and part.element_size() < 4
    if not low or gradient is None or access.local(gradient).shape != part.shape:
        return 0, 0
    moving = access.local(gradient) != 0
    return int(moving.sum()), int((moving & (part == before.part)).sum())
