"""What each rank keeps of its run: one file a step, with all that is needed to compute it again."""

from __future__ import annotations

import io
import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from fsdplint.verify.events import Place
from fsdplint.verify.rank.reference.layout import Region

_load, _save = torch.load, torch.save
"""As they are before a probe takes what they write for the script's."""
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
        """Notes it as it is."""
        generators: dict[str, Any] = {"cpu": torch.get_rng_state(), "python": random.getstate()}
        if cuda:
            generators["cuda"] = torch.cuda.get_rng_state()
        if (numpy := sys.modules.get("numpy")) is not None:
            generators["numpy"] = numpy.random.get_state()
        devices = ("cpu", "cuda") if cuda else ("cpu",)
        on = [d for d in devices if torch.is_autocast_enabled(d)]
        return Ambient(
            generators,
            tuple((d, torch.get_autocast_dtype(d)) for d in on),
            tuple(inner.training for inner in module.modules()),
        )

    def restore(self, module: nn.Module) -> ExitStack:
        """Makes it so again; autocast lasts as long as the stack."""
        torch.set_rng_state(self.generators["cpu"])
        random.setstate(self.generators["python"])
        if "cuda" in self.generators:
            torch.cuda.set_rng_state(self.generators["cuda"])
        if "numpy" in self.generators and (numpy := sys.modules.get("numpy")) is not None:
            numpy.random.set_state(self.generators["numpy"])
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

    layout: dict[Key, Region] = field(default_factory=dict)
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
        """Writes it under a name that `load` finds."""
        _save(self, folder / f"{rank}.{number}.stride")


def count(folder: Path, rank: int) -> int:
    """Returns how many strides of a rank lie in a folder."""
    return len(list(folder.glob(f"{rank}.*.stride")))


def load(folder: Path, rank: int, number: int) -> Stride:
    """Reads what `Stride.save` wrote."""
    stride: Stride = _load(folder / f"{rank}.{number}.stride", weights_only=False)
    return stride


def freeze(inputs: Any) -> bytes:
    """Returns a copy of a call's inputs.

    Raises:
        Exception: whatever pickling them raises.
    """
    copied = pytree.tree_map(lambda leaf: _copy(leaf) if isinstance(leaf, Tensor) else leaf, inputs)
    file = io.BytesIO()
    _save(copied, file)
    return file.getvalue()


def thaw(inputs: bytes) -> Any:
    """Returns what was frozen, on this process's device."""
    return _load(io.BytesIO(inputs), map_location=_here, weights_only=False)


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def _here(storage: Any, location: str) -> Any:
    return storage.cuda() if location.startswith("cuda") else storage


def tensors(value: Any) -> Iterator[Tensor]:
    """Yields the tensors in what a forward returns, always in the same order."""
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
