"""Keep the tape of a sharded run; never communicate, since ranks may have diverged."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Iterable, Iterator, MutableMapping
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import fsdp
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.weak import WeakIdKeyDictionary

from fsdplint.verify.rank import access
from fsdplint.verify.rank.patch import wrap
from fsdplint.verify.rank.recorder import prepares_state
from fsdplint.verify.rank.reference import tape
from fsdplint.verify.rank.reference.layout import Piece, pieces, short
from fsdplint.verify.rank.reference.tape import Ambient, Call, Clip, Key, Parts, Stride
from fsdplint.verify.rank.registry import Seen

MOST_STEPS = 10
"""Steps that are recorded where the script runs to its end."""


def install(seen: Seen) -> None:
    """Watch forwards, backwards, clipping and steps; call it before what ends the script."""
    capture = _Capture(seen, Path(seen.recorder.request.capture))
    wrap(nn.Module, "__call__", capture.call)
    wrap(nn.Module, "zero_grad", capture.zero_grad)
    wrap(Optimizer, "zero_grad", capture.zero_grad)
    wrap(FullyShardedDataParallel, "clip_grad_norm_", capture.clip)
    wrap(torch.nn.utils, "clip_grad_norm_", capture.clip)
    wrap(torch.autograd, "backward", capture.backward)
    wrap(fsdp, "register_fsdp_forward_method", capture.register_method)
    for name in ("all_reduce", "all_gather", "all_gather_into_tensor", "all_to_all_single"):
        wrap(dist, name, capture.collective)
    register_optimizer_step_pre_hook(capture.before_step)
    register_optimizer_step_post_hook(capture.after_step)


class _Capture:
    """The tape of one rank, one stride at a time: `_stride` is under way, `_left` is what the last
    one left."""

    def __init__(self, seen: Seen, folder: Path) -> None:
        self._seen, self._folder = seen, folder
        self._stride = Stride()
        self._calls: list[Call] = []
        self._written = 0
        self._left: Parts = {}
        self._buffers: dict[tuple[int, str], tuple[Tensor, int]] = {}
        self._calling = self._is_backward = False
        self._doubt = ""
        self._watched: MutableMapping[Tensor, bool] = WeakIdKeyDictionary()
        guard = seen.recorder.probe("capture")
        self._enter, self._leave = guard(self._entered), guard(self._left_call)
        self._arrive, self._reached = guard(self._arrived), guard(self._backward_done)
        self._about, self._done = guard(self._about_to_step), guard(self._stepped)
        self._read, self._reset = guard(self._gradients), guard(self._zero)
        self._note_clip = guard(self._clipped)

    def call(self, original: Any, module: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
        """Run ``nn.Module.__call__``; the outermost call of a module with units is kept."""
        if self._calling or self._is_backward or not self._wanted(module):
            return original(module, *args, **kwargs)
        self._calling = True
        try:
            kept = self._enter(module, args, kwargs)
            result = original(module, *args, **kwargs)
        finally:
            self._calling = False
        if kept is not None:
            self._leave(kept, result)
        return result

    def _wanted(self, module: nn.Module) -> bool:
        return not self._full() and torch.is_grad_enabled() and self._seen.has_units(module)

    def _full(self) -> bool:
        return self._written == MOST_STEPS and self._seen.recorder.request.steps is None

    def _entered(self, module: nn.Module, args: Any, kwargs: Any) -> Call:
        """Keep a call's inputs and all else that its result depends on."""
        self._seen.called(module)
        self._begin()
        if (known := self._seen.path(module)) is None:
            raise LookupError(f"`{type(module).__name__}` belongs to no model")
        number, path = known
        try:
            inputs = tape.freeze((args, kwargs))
        except Exception as error:  # pickling runs the inputs' own code
            inputs = b""
            self._stride.obstacle = f"the model's inputs cannot be saved ({error})"
        cuda = any(p.is_cuda for p in module.parameters())
        ambient, buffers = Ambient.take(module, cuda), dict(self._changed_buffers(number, module))
        self._stride.short |= bool(ambient.autocast)
        return Call(number, path, inputs, ambient, buffers, self._seen.place())

    def _changed_buffers(self, number: int, module: nn.Module) -> Iterator[tuple[str, Tensor]]:
        for name, buffer in module.named_buffers():
            known, version = self._buffers.get((number, name), (None, -1))
            if known is not buffer or version != buffer._version:
                self._buffers[number, name] = (buffer, buffer._version)
                yield name, _kept(buffer)

    def _left_call(self, call: Call, result: Any) -> None:
        self._calls.append(call)
        for index, output in enumerate(tape.tensors(result)):
            call.outputs.append(_kept(output))
            if output.requires_grad:
                hook = functools.partial(self._arrive, call, index)
                output.register_hook(hook)  # type: ignore[no-untyped-call]  # torch declares none

    def _arrived(self, call: Call, index: int, gradient: Tensor) -> None:
        kept = _kept(gradient)
        call.gradients[index] = call.gradients[index] + kept if index in call.gradients else kept

    def _begin(self) -> None:
        """Note parameters and gradients, unless backwards of this step have left gradients."""
        self._watch_parameters()
        if not any(call.gradients for call in self._calls):
            now = {key: piece.value() for key, piece in self._pieces().items()}
            self._stride.before = _changes(now, self._left)
            if not self._calls:
                self._stride.base = self._gradients()
        elif not self._gradients() and not self._waiting():
            self._dropped()

    def _watch_parameters(self) -> None:
        """Note gradients that bypass the forward, from what a script computes of a parameter.

        A hook on FSDP2's sharded parameter sees only those: FSDP sets its gradient directly.
        """
        for piece in self._pieces().values():
            parameter = piece.parameter
            inside = piece.unit is not None and piece.flat is None
            if inside and parameter.requires_grad and parameter not in self._watched:
                self._watched[parameter] = True
                hook = functools.partial(self._bypassed, piece.name)
                parameter.register_hook(hook)  # type: ignore[no-untyped-call]  # as above

    def _bypassed(self, name: str, _: Tensor) -> None:
        self._stride.doubt = f"gradients reach `{name}` outside the model's forward"

    def register_method(self, original: Any, module: nn.Module, method_name: str) -> None:
        """Run ``register_fsdp_forward_method``: no call of the module precedes that method."""
        self._doubt = f"the model is also called through `{method_name}`"
        original(module, method_name)

    def _dropped(self) -> None:
        """Forget calls whose gradients the script has thrown away."""
        self._calls = [call for call in self._calls if not call.gradients]
        self._stride.base, self._stride.backwards = {}, 0

    def _waiting(self) -> bool:
        return any(piece.waiting() for piece in self._pieces().values())

    def _pieces(self) -> dict[Key, Piece]:
        return {
            (number, piece.name): piece
            for number, model in enumerate(self._seen.models())
            for piece in pieces(model)
        }

    def _gradients(self, zeros: bool = False) -> Parts:
        """Return this rank's gradients, those that are all zero only on demand."""
        found = {key: piece.gradient() for key, piece in self._pieces().items()}
        return {
            key: _kept(gradient)
            for key, gradient in found.items()
            if gradient is not None and (zeros or bool(gradient.any()))
        }

    def backward(self, original: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Run ``torch.autograd.backward``."""
        if self._is_backward:  # reentrant activation checkpointing
            return original(*args, **kwargs)
        self._is_backward = True
        try:
            original(*args, **kwargs)
        finally:
            self._is_backward = False
        return self._reached()

    def _backward_done(self) -> None:
        self._stride.backwards += 1
        self._stride.arrived = self._gradients()

    def zero_grad(self, original: Any, of: Any, /, *args: Any, **kwargs: Any) -> None:
        """Run a ``zero_grad``: gradients that it has removed are not this step's."""
        unused = any(call.gradients for call in self._calls)
        before = self._read() if unused else None
        original(of, *args, **kwargs)
        if before is not None:
            self._reset(before)

    def _zero(self, before: Parts) -> None:
        after = self._gradients()
        if not after and not self._waiting():
            self._dropped()
        elif after.keys() != before.keys():
            self._stride.obstacle = "some gradients are discarded before the step"

    def clip(self, original: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Run a function that clips: ``clip_grad_norm_(parameters or model, max_norm, …)``."""
        bound = inspect.signature(original).bind(*args, **kwargs)
        bound.apply_defaults()
        given = next(iter(bound.arguments))
        if not isinstance(bound.arguments[given], Tensor | nn.Module):
            bound.arguments[given] = list(bound.arguments[given])
        before = self._read()
        result = original(*bound.args, **bound.kwargs)
        if before is not None:
            self._note_clip(bound.arguments, before)
        return result

    def _clipped(self, given: dict[str, Any], before: Parts) -> None:
        of = next(iter(given.values()))
        clipped = of.parameters() if isinstance(of, nn.Module) else of
        ids = {id(p) for p in ([clipped] if isinstance(clipped, Tensor) else clipped)}
        held = self._pieces()
        keys = tuple(key for key, piece in held.items() if id(piece.parameter) in ids)
        if len({id(held[key].parameter) for key in keys}) == len(ids):
            limits = float(given["max_norm"]), float(given["norm_type"])
            place = self._seen.place()
            self._stride.clips.append(Clip(*limits, keys, before, self._gradients(), place))

    def collective(self, original: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Run a collective: a forward that communicates is not this rank's alone."""
        if self._calling and not _from_fsdp():
            name = original.__name__
            self._stride.doubt = f"the model's forward calls a collective (`{name}`)"
        return original(*args, **kwargs)

    def before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """Run before every optimizer step."""
        if not self._full() and not prepares_state():
            given = (*args[1:], kwargs.get("closure"))  # the first one is the optimizer
            self._about(optimizer, any(value is not None for value in given))

    def _about_to_step(self, optimizer: Optimizer, closure: bool) -> None:
        """Keep what the optimizer finds: gradients, layout, settings."""
        held, stride = self._pieces(), self._stride
        stride.layout = {key: piece.region for key, piece in held.items()}
        stride.units = frozenset(key for key, piece in held.items() if piece.unit is not None)
        stride.stepped = self._gradients(zeros=True)
        seen = self._seen.add_optimizer(optimizer, None)
        stride.optimizer, stride.number = seen.number, seen.steps + 1
        stride.doubt = stride.doubt or self._doubt
        stride.settings = [_simple(group) for group in optimizer.param_groups]
        stride.short |= any(short(model) for model in self._seen.models())
        stride.place = self._seen.place()
        self._left |= stride.before
        stride.obstacle = stride.obstacle or self._obstacle(held.values(), closure)

    def _obstacle(self, held: Iterable[Piece], closure: bool) -> str:
        world = dist.get_world_size() if dist.is_initialized() else 1
        if self._is_backward:
            return "the optimizer steps inside the backward pass"
        if closure:
            return "the optimizer's step takes a closure"
        if any(piece.unit is not None and piece.degree != world for piece in held):
            return "units are sharded over only some of the ranks"
        return ""

    def after_step(self, *_: Any) -> None:
        """Run after every optimizer step."""
        if not self._full() and not prepares_state():
            self._done()

    def _stepped(self) -> None:
        stride = self._stride
        stride.calls = [call for call in self._calls if call.gradients]
        now = {key: piece.value() for key, piece in self._pieces().items()}
        stride.after = _changes(now, self._left)
        self._left |= stride.after
        stride.save(self._folder, self._seen.recorder.rank, self._written)
        self._written += 1
        self._calls, self._stride = [], Stride()


def _from_fsdp() -> bool:
    """True if FSDP issues this collective, and not code that it calls."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith("torch.distributed.fsdp"):
            return True
        if not module.startswith(("torch", "fsdplint")):
            return False
        frame = frame.f_back
    return False


def _kept(tensor: Tensor) -> Tensor:
    return access.local(tensor).cpu().clone()


def _changes(now: Parts, known: Parts) -> Parts:
    """Return copies of the parts that are not as they were known."""
    return {
        key: _kept(part)
        for key, part in now.items()
        if key not in known or not torch.equal(known[key], part.cpu())
    }


def _simple(group: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a parameter group that are plain values."""
    kinds = (bool, int, float, str, tuple, Tensor)
    return {k: v for k, v in group.items() if k != "params" and isinstance(v, kinds)}
