"""Note the norms that gradients are clipped by, and numbers read from a part of a reduction."""

from __future__ import annotations

import functools
import inspect
import itertools
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor

from fsdplint.verify.events import Norm, NumberRead, Place, ReadCombined, Share
from fsdplint.verify.rank import access
from fsdplint.verify.rank.access import Held, cut
from fsdplint.verify.rank.patch import wrap
from fsdplint.verify.rank.recorder import called_by_torch
from fsdplint.verify.rank.registry import Seen

_READS = ("item", "__float__", "__int__", "__bool__", "__index__", "full_tensor")
_COLLECTIVES = (
    *("all_reduce", "reduce", "all_gather", "all_gather_into_tensor", "gather"),
    *("all_gather_object", "gather_object"),
)
_CLIPS = (
    (torch.nn.utils, "clip_grad_norm_", "torch.nn.utils.clip_grad_norm_"),
    (torch.nn.utils, "clip_grads_with_norm_", "torch.nn.utils.clip_grads_with_norm_"),
    (FullyShardedDataParallel, "clip_grad_norm_", "FullyShardedDataParallel.clip_grad_norm_"),
)
_SMALL = 64
"""Elements of a tensor that may carry numbers that were read one by one."""


def install(seen: Seen) -> None:
    """Wrap what clips by norm, and what reads a number from a DTensor."""
    norms, reads = _Norms(seen), _Reads(seen)
    wrap(torch.nn.utils, "get_total_norm", norms.total)
    for owner, name, call in _CLIPS:
        wrap(owner, name, functools.partial(norms.clip, call))
    wrap(GradScaler, "__init__", norms.scaler)
    for name in _COLLECTIVES:
        wrap(dist, name, functools.partial(reads.combine, name))
    for name in _READS:
        wrap(DTensor, name, functools.partial(reads.read, name.strip("_")))


@dataclass(frozen=True)
class _Gradients:
    """Powers of gradients before a clip; see `Norm` for the fields."""

    whole: float
    shares: tuple[Share, ...]
    count: int
    precision: int
    api: str


class _Norms:
    """The norms that gradients are clipped by, and those of the gradients themselves."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._inside = False
        self._type = 2.0
        guard = seen.recorder.probe("gradient-norm")
        self._look, self._note = guard(self._measure), guard(self._write)

    def scaler(self, original: Any, scaler: Any, *args: Any, **kwargs: Any) -> None:
        """Make a gradient scaler, and remember it: it skips steps that overflow."""
        original(scaler, *args, **kwargs)
        self._seen.scaled |= scaler.is_enabled()

    def total(
        self, original: Any, tensors: Any, norm_type: float = 2.0, *args: Any, **kwargs: Any
    ) -> Any:
        """Run ``get_total_norm``; what the script does with its result shows when it clips."""
        self._type = float(norm_type)
        return original(tensors, norm_type, *args, **kwargs)

    def clip(self, call: str, original: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Run what clips, and note its norm beside that of the gradients.

        Their first parameter is what to clip: parameters, or FSDP1's model. A clip that is part of
        another one is not noted. `clip_grads_with_norm_` gets the norm, the others compute it.
        """
        if self._inside:
            return original(*args, **kwargs)
        bound = inspect.signature(original).bind(*args, **kwargs)
        bound.apply_defaults()
        given, first = bound.arguments, next(iter(bound.arguments))
        if not isinstance(given[first], nn.Module):
            given[first] = [given[first]] if isinstance(given[first], Tensor) else [*given[first]]
        norm_type = float(given.get("norm_type", self._type))
        self._inside = True
        try:
            before = self._look(given[first], norm_type)
            result = original(*bound.args, **bound.kwargs)
        finally:
            self._inside = False
        if before is not None and before.count:
            brought = "total_norm" in given
            used = given["total_norm"] if brought else result
            self._note(call, brought, used, norm_type, before)
        return result

    def _measure(self, parameters: list[Any] | nn.Module, norm_type: float) -> _Gradients:
        """Add up powers of the gradients of parameters, or of a model's."""
        held = {id(h.parameter): h for h in self._seen.parameters()}
        wanted = (
            [h.parameter for h in access.parameters(parameters)]
            if isinstance(parameters, nn.Module)
            else parameters
        )
        gradients = [(p, p.grad) for p in wanted if p.grad is not None]
        powers = _powers([access.local(gradient) for _, gradient in gradients], norm_type)
        whole, api = [0.0], ""
        shares: dict[tuple[int, ...], list[float]] = defaultdict(list)
        for (parameter, gradient), power in zip(gradients, powers, strict=True):
            known = held.get(id(parameter))
            slice_of = cut(gradient, known if _is_fsdp1(known) else None)
            if slice_of is None:
                whole.append(power)
            else:
                shares[slice_of.group].append(power)
                api = "fsdp1" if _is_fsdp1(known) else "fsdp2"
        add = max if norm_type == math.inf else math.fsum
        return _Gradients(
            add(whole),
            tuple(Share(ranks, repr(add(each))) for ranks, each in shares.items()),
            len(gradients),
            min((gradient.element_size() for _, gradient in gradients), default=4),
            api,
        )

    def _write(
        self, call: str, given: bool, used: Any, norm_type: float, before: _Gradients
    ) -> None:
        """Write down a clip, with the gradients as they were before it."""
        value = float(access.local(used)) if isinstance(used, Tensor) else float(used)
        self._seen.write(
            Norm(
                call,
                given,
                repr(value),
                *_combination(used),
                repr(norm_type),
                repr(before.whole),
                before.shares,
                before.precision,
                self._seen.scaled,
                before.api,
                self._seen.steps,
                self._seen.place(),
            )
        )


def _is_fsdp1(held: Held | None) -> bool:
    return held is not None and isinstance(held.unit, FullyShardedDataParallel)


def _powers(parts: list[Tensor], norm_type: float) -> list[float]:
    """Return each part's sum of powers (its maximum for inf); an empty part has none."""
    found = [
        float(torch.linalg.vector_norm(part, norm_type, dtype=torch.float32))
        if part.numel()
        else 0.0
        for part in parts
    ]
    return found if norm_type == math.inf else [norm**norm_type for norm in found]


def _combination(value: Any) -> tuple[str, tuple[int, ...]]:
    """Return how ranks' parts of a DTensor make the whole, and which ranks'; nothing of a whole
    one."""
    slice_of = cut(value) if isinstance(value, DTensor) else None
    if slice_of is None:
        return "", ()
    placement: Any = next(p for p in value.placements if not p.is_replicate())
    how = "norm" if hasattr(placement, "norm_type") else getattr(placement, "reduce_op", "shard")
    return str(how), slice_of.group


class _Reads:
    """Numbers read from DTensors since the last step, by place and by whether they are local."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._step = 0
        self._local: dict[Place | None, list[float]] = defaultdict(list)
        self._written: set[tuple[Place | None, bool]] = set()
        guard = seen.recorder.probe("reductions")
        self._look, self._trace = guard(self._note), guard(self._find)

    def read(self, name: str, original: Any, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a method that makes a number of a tensor, or makes it whole first."""
        value = original(tensor, *args, **kwargs)
        if tensor.numel() == 1 and not called_by_torch():
            self._look(name, tensor, value)
        return value

    def _note(self, name: str, tensor: DTensor, value: Any) -> None:
        """Note a read, once per place and step."""
        if self._step != self._seen.steps:
            self._step = self._seen.steps
            self._local.clear()
            self._written.clear()
        place = self._seen.place()
        text = "" if isinstance(value, Tensor) else repr(value)
        local = bool(text) and cut(tensor) is not None
        if local:
            self._local[place].append(float(value))
        if (place, local) not in self._written:
            self._written.add((place, local))
            placements = tuple(map(repr, tensor.placements))
            self._seen.write(NumberRead(name, text, local, placements, self._step, place))

    def combine(self, name: str, original: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a collective: what was read before may go through it, which makes it whole."""
        if self._local:
            self._trace(name, [*args, *kwargs.values()])
        return original(*args, **kwargs)

    def _find(self, name: str, arguments: list[Any]) -> None:
        sent = [number for value in arguments for number in _numbers(value)]
        for place, read in self._local.items():
            usual = _usual(read)
            if any(math.isclose(a, b, rel_tol=1e-4) for a in sent for b in usual):
                self._seen.write(ReadCombined(name, place, self._seen.place()))


def _usual(read: list[float]) -> list[float]:
    """Return what scripts make of the numbers that they read before they combine them."""
    squares = math.fsum(value * value for value in read)
    return [
        *read,
        *(value * value for value in read),
        math.fsum(read),
        math.fsum(map(abs, read)),
        squares,
        math.sqrt(squares),
    ]


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, bool | int | float):
        yield float(value)
    elif isinstance(value, Tensor):
        if value.numel() <= _SMALL and not isinstance(value, DTensor) and not value.is_complex():
            yield from map(float, value.detach().flatten().tolist())
    elif isinstance(value, dict):
        yield from itertools.chain.from_iterable(map(_numbers, value.values()))
    elif isinstance(value, list | tuple) and len(value) <= _SMALL:
        yield from itertools.chain.from_iterable(map(_numbers, value))
