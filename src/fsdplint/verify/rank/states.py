"""Whose state a tensor of a checkpoint is, and whether it is whole or a rank's slice."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import PurePath
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.optim import Optimizer

from fsdplint.verify.events import Part, State
from fsdplint.verify.rank import access
from fsdplint.verify.rank.access import Cut, Held, cut, elements
from fsdplint.verify.rank.registry import Seen

_DEPTH = 12
_AVERAGE = re.compile(r"(?i)(?<![a-z])(ema|swa|shadow|averaged?)(?![a-z])")
"""What scripts call an average of the weights."""


@dataclass(frozen=True)
class Leaf:
    """A tensor in what is written.

    Attributes:
        path: the keys that lead to it.
        owner: for an optimizer's state, what the optimizer calls the parameter.
    """

    path: tuple[str, ...]
    tensor: Tensor
    owner: str | int | None = None


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """Yield every tensor in nested containers, dataclasses and modules."""
    if isinstance(value, Tensor):
        yield Leaf(path, value)
    elif len(path) == _DEPTH:
        return
    elif isinstance(value, Mapping):
        yield from _of_optimizer(value, path) if is_optimizer(value) else _of_mapping(value, path)
    elif isinstance(value, list | tuple):
        yield from _of_mapping(dict(enumerate(value)), path)
    elif isinstance(value, nn.Module):
        yield from (Leaf((*path, access.clean(n)), p) for n, p in value.named_parameters())
    elif is_dataclass(value) and not isinstance(value, type):
        yield from _of_mapping({f.name: getattr(value, f.name, None) for f in fields(value)}, path)


def _of_mapping(value: Mapping[Any, Any], path: tuple[str, ...]) -> Iterator[Leaf]:
    for key, item in list(value.items()):
        yield from leaves(item, (*path, str(key)))


def is_optimizer(value: Mapping[Any, Any]) -> bool:
    """True if this is an optimizer's state dict, nested or flattened."""
    nested = isinstance(value.get("state"), Mapping) and "param_groups" in value
    return nested or _is_flat(value)


def _is_flat(value: Mapping[Any, Any]) -> bool:
    return any(isinstance(key, str) and key.startswith("param_groups.") for key in value)


def _of_optimizer(value: Mapping[Any, Any], path: tuple[str, ...]) -> Iterator[Leaf]:
    if _is_flat(value):
        for key, item in value.items():
            if isinstance(item, Tensor) and str(key).startswith("state."):
                yield Leaf((*path, key), item, key.removeprefix("state.").rpartition(".")[0])
        return
    for owner, state in value["state"].items():
        for leaf in leaves(state, (*path, str(owner))):
            yield Leaf(leaf.path, leaf.tensor, owner if isinstance(owner, int) else str(owner))


class _Known:
    """A model's parameters as an unsharded model names them."""

    def __init__(self, model: nn.Module) -> None:
        held = [
            (name, shape, h)
            for h in access.parameters(model)
            for name, shape in access.originals(h)
        ]
        self.model = model
        self.shapes = {name: shape for name, shape, _ in held}
        self.held = {name: h for name, _, h in held}
        self.aliases = {name: name for name in self.shapes} | _aliases(model, self.shapes)

    def find(self, leaf: Leaf) -> str | None:
        """Return the parameter a tensor stands for: it has its name, or, behind a prefix, its
        name and its shape or that of its part."""
        name = access.clean(leaf.path[-1]) if leaf.path else ""
        if name in self.aliases:
            return self.aliases[name]
        pieces = access.clean(".".join(leaf.path)).split(".")
        for start in range(len(pieces)):
            name = ".".join(pieces[start:])
            if name in self.aliases and self.fits(self.aliases[name], leaf.tensor):
                return self.aliases[name]
        return None

    def fits(self, name: str, tensor: Tensor) -> bool:
        """True if a tensor has the shape of the whole parameter or of this rank's part."""
        return tuple(tensor.shape) == self.shapes[name] or _is_part(tensor, self.held[name])


def _aliases(model: nn.Module, names: dict[str, tuple[int, ...]]) -> dict[str, str]:
    """Return what else tied parameters are called."""
    same: dict[int, list[str]] = defaultdict(list)
    for name, parameter in nn.Module.named_parameters(model, remove_duplicate=False):
        same[id(parameter)].append(access.clean(name))
    return {
        alias: first
        for tied in same.values()
        if (first := next((name for name in tied if name in names), None))
        for alias in tied
    }


def _is_part(tensor: Tensor, held: Held) -> bool:
    part = access.local(held.parameter)
    return tensor.shape == part.shape and tuple(part.shape) != held.shape


def _is_all_here(held: Held) -> bool:
    """True if FSDP1 shards a parameter and this rank's part is all of it."""
    whole = tuple(access.local(held.parameter).shape) == held.shape
    return whole and isinstance(held.unit, FullyShardedDataParallel) and not held.flat


@dataclass
class _Sum:
    """The sum of one state's entries."""

    names: set[str] = field(default_factory=set)
    wholes: int = 0
    elements: int = 0
    odd: int = 0
    parts: dict[Cut, list[int]] = field(default_factory=dict)
    # Entries of which this rank's part is the whole, so that they do not tell which one they are.
    whole_here: list[tuple[Cut | None, int]] = field(default_factory=list)

    def add(self, tensor: Tensor, held: Held | None, shape: tuple[int, ...] | None) -> None:
        """Add one entry, the state of a parameter of that whole shape, where it is known."""
        slice_of = cut(tensor)
        mine, whole = elements(tensor)
        # FSDP1 may leave all of a small parameter to one rank, and nothing of it to the others.
        if slice_of is None and held is not None and _is_all_here(held):
            self.whole_here.append((cut(None, held), mine))
            return
        if slice_of is None and held is not None and tuple(tensor.shape) != shape:
            slice_of = cut(None, held) if _is_part(tensor, held) else None
            if slice_of is None:
                self.odd += 1
                return
            whole = torch.Size(held.shape).numel()
        if slice_of is None:
            self.wholes += 1
            self.elements += mine
            return
        total = self.parts.setdefault(slice_of, [0, 0])
        for index, count in enumerate((mine, whole)):
            total[index] += count

    def state(self, what: str, cls: str, names: list[str]) -> State:
        """Return the sum; with parts of others, what could be either is a part."""
        for slice_of, count in self.whole_here:
            if slice_of in self.parts:
                self.parts[slice_of] = [held + count for held in self.parts[slice_of]]
            else:
                self.wholes += 1
                self.elements += count
        self.whole_here = []
        return State(
            what,
            cls,
            len(names),
            tuple(name for name in names if name not in self.names),
            self.elements,
            self.odd,
            tuple(Part(c.ranks, c.position, c.of, *counts) for c, counts in self.parts.items()),
        )


def states(seen: Seen, value: Any) -> tuple[int, tuple[State, ...]]:
    """Return how many tensors there are in what is written, and whose they are."""
    found = list(leaves(value))
    models = [_Known(model) for model in seen.models()]
    sums: dict[int, _Sum] = defaultdict(_Sum)
    other, optimizers = _Sum(), _Sum()
    for container in _containers(found):
        index, names = _best(models, container)
        for leaf, name in zip(container, names, strict=True):
            if leaf.owner is not None:
                _add_moment(seen, models, optimizers, leaf)
            elif name is None:
                other.add(leaf.tensor, None, None)
            else:
                known = models[index]
                sums[index].names.add(name)
                sums[index].add(leaf.tensor, known.held[name], known.shapes[name])
    result = [
        total.state("model", access.class_name(models[index].model), list(models[index].shapes))
        for index, total in sums.items()
    ]
    for what, total in (("optimizer", optimizers), ("other", other)):
        if total.wholes or total.odd or total.parts or total.whole_here:
            result.append(total.state(what, "", []))
    return len(found), tuple(result)


def live_average(seen: Seen, value: Any, path: str) -> str:
    """Return what a write calls an average of the weights though it is the trained parameters
    themselves; empty where there is no such thing.

    Parameters that have other values than the last step gave them do not count: a script may have
    put the average in their place for the save.

    Args:
        path: of the file, which names a container that has no key.
    """
    containers = _containers(list(leaves(value)))
    for container in containers:
        keys = container[0].path[:-1]
        names = keys or ((PurePath(path).name,) if len(containers) == 1 else ())
        name = next((name for name in names if _AVERAGE.search(name)), "")
        if name and sum(_is_trained(seen, leaf) for leaf in container) > len(container) // 2:
            return name
    return ""


def _is_trained(seen: Seen, leaf: Leaf) -> bool:
    address = access.address(leaf.tensor)
    digest = seen.stepped.get(address)
    return digest is not None and digest == access.digest(access.local(leaf.tensor))


def _containers(found: list[Leaf]) -> list[list[Leaf]]:
    """Return the tensors by the container they lie in: a state dict is one."""
    by_path: dict[tuple[str, ...], list[Leaf]] = defaultdict(list)
    for leaf in found:
        by_path[leaf.path[:-1]].append(leaf)
    return list(by_path.values())


def _best(models: list[_Known], container: list[Leaf]) -> tuple[int, list[str | None]]:
    """Return the model that most of a container's tensors belong to, and their names in it."""
    each = [[known.find(leaf) for leaf in container] for known in models]
    none: list[str | None] = [None] * len(container)
    fitting = [
        sum(
            name is not None and known.fits(name, leaf.tensor)
            for name, leaf in zip(names, container, strict=True)
        )
        for known, names in zip(models, each, strict=True)
    ]
    if not any(fitting):
        return 0, none
    index = fitting.index(max(fitting))
    return index, each[index]


def _add_moment(seen: Seen, models: list[_Known], total: _Sum, leaf: Leaf) -> None:
    """Add a tensor of an optimizer's state; scalars such as step counts are nobody's slices."""
    if leaf.tensor.dim() == 0:
        return
    if isinstance(leaf.owner, int):
        held = _numbered(seen, models, leaf)
        total.add(leaf.tensor, held, held.shape if held else None)
        return
    name = access.clean(str(leaf.owner))
    known = next((k for k in models if name in k.aliases), None)
    if known is None:
        total.add(leaf.tensor, None, None)
        return
    total.add(leaf.tensor, known.held[known.aliases[name]], known.shapes[known.aliases[name]])


def _numbered(seen: Seen, models: list[_Known], leaf: Leaf) -> Held | None:
    """Return the parameter that an optimizer's state dict calls by a number.

    Several optimizers number alike: only one whose own state the tensor is, or fits, will do.
    """
    held = {id(h.parameter): h for known in models for h in known.held.values()}
    for optimizer in list(seen.optimizers):
        parameter = _parameter(optimizer, leaf)
        if parameter is not None and id(parameter) in held:
            return held[id(parameter)]
    return None


def _parameter(optimizer: Optimizer, leaf: Leaf) -> nn.Parameter | None:
    parameters = access.held_by(optimizer)
    if not isinstance(leaf.owner, int) or leaf.owner >= len(parameters):
        return None
    parameter = parameters[leaf.owner]
    same = access.local(parameter).shape == access.local(leaf.tensor).shape
    return parameter if same or parameter.shape == leaf.tensor.shape else None
