"""What is in a checkpoint: tensors, by the parameters that they belong to, and numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from fsdplint.verify.rank import access
from fsdplint.verify.rank.equivalence.records import Parts, copied
from fsdplint.verify.rank.reference.layout import boxed
from fsdplint.verify.rank.reference.region import Box, Region, whole
from fsdplint.verify.rank.states import Leaf, is_optimizer, leaves

_DEPTH = 12
_MOST = 1000
"""Single numbers to read: a history of losses may be long."""


@dataclass(frozen=True)
class Names:
    """What the tensors of a checkpoint may belong to.

    Attributes:
        state: names of parameters and buffers, as an unsharded model has them.
        parameters: names of parameters by their identity.
        optimizers: whose state dicts number their parameters.
    """

    state: Iterable[str]
    parameters: Mapping[int, str]
    optimizers: list[Optimizer]


def tensors(value: Any, names: Names) -> Parts:
    """Return the tensors in what is written: a model's under the names of its parameters and
    buffers, an optimizer's under those of its parameters, others by the keys that lead to them.

    If two have one name, as the weights and their average, keys tell them apart.
    """
    known = {name.rpartition(": ")[2]: name for name in names.state}
    found: dict[str, list[Leaf]] = defaultdict(list)
    for leaf in leaves(value):
        found[_name(leaf, known, names)].append(leaf)
    result: Parts = {}
    for name, same in found.items():
        for leaf in same:
            key = name if len(same) == 1 else access.clean(".".join(leaf.path))
            result[key] = _parts(key, leaf.tensor)
    return result


def _name(leaf: Leaf, known: Mapping[str, str], names: Names) -> str:
    path = access.clean(".".join(leaf.path))
    if leaf.owner is None:
        return _longest(path, known) or path
    number = isinstance(leaf.owner, int)
    owner = _numbered(leaf, names) if number else access.clean(str(leaf.owner))
    return f"{path.rpartition('.')[2]} of {_longest(owner, known) or owner}"


def _longest(path: str, known: Mapping[str, str]) -> str:
    """Return the parameter or buffer whose name a path ends with; empty if there is none."""
    words = path.split(".")
    ends = (".".join(words[start:]) for start in range(len(words)))
    return next((known[end] for end in ends if end in known), "")


def _numbered(leaf: Leaf, names: Names) -> str:
    """Return the name of the parameter that an optimizer's state dict calls by a number."""
    for optimizer in names.optimizers:
        held = access.held_by(optimizer)
        if isinstance(leaf.owner, int) and leaf.owner < len(held):
            parameter = held[leaf.owner]
            shapes = ((), tuple(parameter.shape), tuple(access.local(parameter).shape))
            if id(parameter) in names.parameters and tuple(leaf.tensor.shape) in shapes:
                return names.parameters[id(parameter)]
    return f"#{leaf.owner}"


def _parts(name: str, tensor: Tensor) -> list[tuple[Region | Box, Tensor]]:
    """Return this rank's parts of a tensor, and where they lie.

    Raises:
        Incomparable: it is divided in a way that is not known.
    """
    if isinstance(tensor, DTensor):
        return [(boxed(name, tensor), copied(name, access.local(tensor)))]
    if isinstance(tensor, ShardedTensor):
        shape = tuple(tensor.size())
        shards = [(shard.metadata, shard.tensor) for shard in tensor.local_shards()]
        return [
            (Box(shape, tuple(at.shard_offsets), tuple(at.shard_sizes)), copied(name, part))
            for at, part in shards
        ]
    return [(whole(tuple(tensor.shape)), copied(name, tensor))]


def numbers(value: Any) -> list[tuple[str, float]]:
    """Return the single numbers in what is written, without those of optimizers, whose formats
    differ."""
    found: list[tuple[str, float]] = []
    for pair in _numbers(value, ()):
        if len(found) == _MOST:
            break
        found.append(pair)
    return found


def _numbers(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, float]]:
    if isinstance(value, int | float):
        yield ".".join(path), float(value)
    elif len(path) == _DEPTH or (isinstance(value, Mapping) and is_optimizer(value)):
        return
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _numbers(item, (*path, str(key)))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _numbers(item, (*path, str(index)))
