"""What each rank keeps of its run: one file a step, with all that is needed to compute it again.

A stride is one rank's part of an optimizer step; a step has the strides of all ranks side by side.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from fsdplint.verify.events import Place
from fsdplint.verify.rank import generators
from fsdplint.verify.rank.reference import measure
from fsdplint.verify.rank.reference.layout import Incomparable
from fsdplint.verify.rank.reference.measure import Shares
from fsdplint.verify.rank.reference.region import Box, Region
from fsdplint.verify.rank.unwatched import torch_load, torch_save

Key = tuple[int, str]
"""A parameter: its model's number and its name there."""
Parts = dict[Key, Tensor]


@dataclass(frozen=True)
class Ambient:
    """What a forward depends on beside its inputs: random states, autocast, train or eval."""

    generators: dict[str, Any]
    autocast: tuple[tuple[str, torch.dtype], ...]
    modes: tuple[bool, ...]

    @staticmethod
    def take(module: nn.Module, cuda: bool) -> Ambient:
        """Record the present state."""
        devices = ("cpu", "cuda") if cuda else ("cpu",)
        on = [d for d in devices if torch.is_autocast_enabled(d)]
        return Ambient(
            generators.take(cuda),
            tuple((d, torch.get_autocast_dtype(d)) for d in on),
            tuple(inner.training for inner in module.modules()),
        )

    def restore(self, module: nn.Module) -> ExitStack:
        """Make it so again; autocast lasts as long as the stack."""
        generators.restore(self.generators)
        for inner, training in zip(module.modules(), self.modes, strict=False):
            inner.training = training
        stack = ExitStack()
        for device, dtype in self.autocast:
            stack.enter_context(torch.autocast(device, dtype))
        return stack


@dataclass
class Call:
    """A forward of a module that no other module called.

    Attributes:
        model: the number of its model, and `path` its name there.
        inputs: arguments and keyword arguments, as `torch.save` writes them.
        buffers: those that are not what they were at the rank's last call.
        gradients: what reached each output in backward, summed over backward passes.
    """

    model: int
    path: str
    inputs: bytes
    ambient: Ambient
    buffers: dict[str, Tensor]
    place: Place | None
    outputs: list[Tensor] = field(default_factory=list)
    gradients: dict[int, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Clip:
    """Gradients were clipped to a norm: those of `keys`, before and after."""

    max_norm: float
    norm_type: float
    keys: tuple[Key, ...]
    before: Parts
    after: Parts
    place: Place | None


@dataclass
class Stride:
    """All of one optimizer step on one rank.

    Attributes:
        before: parameters, where they are not what the last step left.
        base: gradients that were there before the step's first backward.
        backwards: how many there were; `arrived`: the gradients after the last of them.
        stepped: gradients as the optimizer found them.
        number: of the steps of this optimizer, from 1.
        settings: its parameter groups, without the parameters.
        after: parameters that the step has changed.
        short: 16-bit numbers take part.
        doubt: why a difference would not be the sharding's.
        obstacle: why it cannot be computed again; empty where it can.
    """

    layout: dict[Key, Region | Box] = field(default_factory=dict)
    units: frozenset[Key] = frozenset()
    before: Parts = field(default_factory=dict)
    base: Parts = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    backwards: int = 0
    arrived: Parts = field(default_factory=dict)
    clips: list[Clip] = field(default_factory=list)
    stepped: Parts = field(default_factory=dict)
    optimizer: int = 0
    number: int = 1
    settings: list[dict[str, Any]] = field(default_factory=list)
    after: Parts = field(default_factory=dict)
    short: bool = False
    doubt: str = ""
    obstacle: str = ""
    place: Place | None = None

    @property
    def last(self) -> Parts:
        """The gradients after backward and clipping."""
        return self.clips[-1].after if self.clips else self.arrived

    def save(self, folder: Path, rank: int, number: int) -> None:
        """Write it under a name that `load` finds."""
        torch_save(self, folder / f"{rank}.{number}.stride")


def count(folder: Path, rank: int) -> int:
    """Return how many strides of a rank lie in a folder."""
    return len(list(folder.glob(f"{rank}.*.stride")))


def load(folder: Path, rank: int, number: int) -> Stride:
    """Read what `Stride.save` wrote."""
    stride: Stride = torch_load(folder / f"{rank}.{number}.stride", weights_only=False)
    return stride


def freeze(inputs: Any) -> bytes:
    """Return a copy of a call's inputs.

    Raises:
        Exception: whatever pickling them raises.
    """
    copied = pytree.tree_map(lambda leaf: _copy(leaf) if isinstance(leaf, Tensor) else leaf, inputs)
    file = io.BytesIO()
    torch_save(copied, file)
    return file.getvalue()


def thaw(inputs: bytes) -> Any:
    """Return what was frozen, on this process's device."""
    return torch_load(io.BytesIO(inputs), map_location=_here, weights_only=False)


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def _here(storage: Any, location: str) -> Any:
    return storage.cuda() if location.startswith("cuda") else storage


def tensors(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in what a forward returns, always in the same order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors(item)
    elif is_dataclass(value) and not isinstance(value, type):
        for entry in fields(value):
            yield from tensors(getattr(value, entry.name))


class Step:
    """What the ranks' tapes hold of one step.

    Attributes:
        strides: one a rank; `first` has what is the same in all of them.
    """

    def __init__(self, strides: Sequence[Stride]) -> None:
        self.strides, self.first = strides, strides[0]

    @property
    def tolerance(self) -> float:
        """How far numbers may be off."""
        short = any(stride.short for stride in self.strides)
        return measure.SHORT_TOLERANCE if short else measure.TOLERANCE

    @property
    def doubt(self) -> str:
        """Why a difference would not be the sharding's; empty where it would."""
        return next((stride.doubt for stride in self.strides if stride.doubt), "")

    @property
    def computes(self) -> bool:
        """True if there was a backward since the step before."""
        return any(stride.backwards for stride in self.strides)

    @property
    def edited(self) -> bool:
        """True if the step's gradients are not just what backward and clipping make them."""
        return any(s.base or (s.backwards and _changed(s.last, s.stepped)) for s in self.strides)

    @property
    def clips(self) -> Iterator[tuple[Clip, ...]]:
        """Yield each clipping, as all ranks did it."""
        return zip(*(stride.clips for stride in self.strides), strict=False)

    def check(self, shapes: dict[Key, tuple[int, ...]]) -> None:
        """Make sure that a model with these parameters can play it.

        Raises:
            Incomparable: it cannot.
        """
        if obstacle := next((s.obstacle for s in self.strides if s.obstacle), ""):
            raise Incomparable(obstacle)
        for stride in self.strides:
            if stride.optimizer != self.first.optimizer:
                raise Incomparable("ranks step different optimizers")
            there = {key: region.shape for key, region in stride.layout.items()}
            if other := sorted(name for (_, name), _ in there.items() ^ shapes.items()):
                raise Incomparable(f"the model differs in one process (`{other[0]}`)")
            if stride.calls and not stride.backwards:
                raise Incomparable("the gradients do not come from `backward`")
        if self.computes and not any(stride.calls for stride in self.strides):
            raise Incomparable("no backward pass used a forward of the whole model")

    def shares(self, key: Key, parts: Sequence[Parts]) -> Shares:
        """Return each rank's part of a tensor, with where it lies."""
        return [(s.layout[key], p.get(key)) for s, p in zip(self.strides, parts, strict=True)]

    def join(self, parts: Sequence[Parts]) -> Parts:
        """Put whole tensors together from the ranks' parts; what no rank has of one is zero."""
        whole = {}
        for key, part in ((key, part) for mine in parts for key, part in mine.items()):
            if key not in whole:
                whole[key] = torch.zeros(self.first.layout[key].shape, dtype=part.dtype)
        for stride, mine in zip(self.strides, parts, strict=True):
            for key, part in mine.items():
                stride.layout[key].write(whole[key], part)
        return whole

    def gradients(self, key: Key) -> Iterator[Shares]:
        """Yield what the ranks' parts of a gradient may be taken to be.

        What was there before the backward may have been removed first. A parameter outside every
        unit may be averaged by the script itself, before it steps.
        """
        base, arrived = [s.base for s in self.strides], [s.arrived for s in self.strides]
        yield self.shares(key, arrived)
        if any(key in mine for mine in base):
            yield [
                (region, _minus(part, old))
                for (region, part), (_, old) in zip(
                    self.shares(key, arrived), self.shares(key, base), strict=True
                )
            ]
        if key not in self.first.units:
            yield self.shares(key, [s.stepped for s in self.strides])

    def factors(self, key: Key, rest: float) -> list[float]:
        """Return by how much ranks' parts of a gradient were scaled after backward and clipping.

        Leaves out where there is nothing to scale, or more than `rest` of it changed otherwise.
        """
        found = [_factor(s.last.get(key), s.stepped.get(key), rest) for s in self.strides]
        return [factor for factor in found if factor is not None]


class Tapes:
    """All ranks' tapes in one folder; its length is how many steps every rank has taken."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        names = {file.name.split(".")[0] for file in folder.glob("*.stride")}
        self.ranks = sorted(map(int, names))

    def __iter__(self) -> Iterator[Step]:
        for number in range(min(count(self._folder, rank) for rank in self.ranks)):
            yield Step([load(self._folder, rank, number) for rank in self.ranks])


def _minus(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    if one is None or other is None:
        return one if other is None else -other
    return one - other


def _changed(before: Parts, after: Parts) -> bool:
    return any(
        not torch.equal(before[key], part) if key in before else bool(part.any())
        for key, part in after.items()
    )


def _factor(before: Tensor | None, after: Tensor | None, rest: float) -> float | None:
    if before is None or after is None:
        return None
    if torch.equal(before, after):
        return 1.0
    one, other = before.reshape(-1).double(), after.reshape(-1).double()
    factor = float(one @ other / (one @ one))
    pure = measure.distance(one * factor, other) <= rest * measure.norm(other)
    return factor if pure and math.isfinite(factor) else None
