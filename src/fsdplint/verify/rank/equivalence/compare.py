"""Compare the records of two runs, in any process that has PyTorch."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from fsdplint.verify.differences import Checkpoint, Compared, Differences
from fsdplint.verify.rank.equivalence.checkpoints import Content, pairs
from fsdplint.verify.rank.equivalence.records import Parts, saves, trainings, whole
from fsdplint.verify.rank.reference.measure import (
    SHORT_TOLERANCE,
    TOLERANCE,
    distance,
    norm,
    update_scale,
)

_EXACT = 1e-6
"""Relative L2 up to which initial parameters are equal: nothing rounds them."""
_CLOCK = re.compile(r"(?i)time|seconds|elapsed|duration|per_sec|speed|memory")
"""Numbers in a checkpoint that no two runs share."""
Wholes = Mapping[str, Tensor]
Entries = Mapping[str, tuple[Tensor, bool]]


def compare(before: Path, after: Path) -> Compared:
    """Compare what the ranks of two runs have left in two folders."""
    first, second = trainings(before), trainings(after)
    short = any(rank.short for rank in first), any(rank.short for rank in second)
    tolerance = SHORT_TOLERANCE if short[0] else TOLERANCE
    adopted = frozenset[str]().union(*(rank.adopted for rank in second))
    unread: dict[str, None] = {}
    started, start = (_all([rank.start for rank in ranks], unread) for ranks in (first, second))
    ended, end = (_all([rank.end for rank in ranks], unread) for ranks in (first, second))
    moves, moves_now = set(_moved(started, ended)), set(_moved(start, end))
    measure = Measure(
        started, _unclear(_all([r.gradients for r in first], {}), tolerance), tolerance
    )
    return Compared(
        tolerance,
        short,
        tuple(unread),
        _initial(started, start),
        len(adopted),
        tuple(dict.fromkeys(moment for rank in second for moment in rank.restored)),
        measure.parameters(ended, end),
        sum(int(elements.sum()) for elements in measure.unclear.values()),
        (len(moves), len(moves_now)),
        tuple(sorted(moves & end.keys() - moves_now)),
        tuple(measure.checkpoint(*pair) for pair in pairs(saves(before), saves(after))),
    )


def moved(folder: Path) -> int:
    """Return how many parameters a run has changed."""
    ranks = trainings(folder)
    start, end = _all([r.start for r in ranks], {}), _all([r.end for r in ranks], {})
    return len(set(_moved(start, end)))


def _all(ranks: list[Parts], unread: dict[str, None]) -> dict[str, Tensor]:
    """Return whole tensors of all ranks' parts, and add names of incomplete ones to `unread`."""
    found = {}
    for name in dict.fromkeys(name for parts in ranks for name in parts):
        tensor, complete = whole(part for parts in ranks for part in parts.get(name, ()))
        if complete:
            found[name] = tensor
        else:
            unread[name] = None
    return found


def _moved(start: Wholes, end: Wholes) -> Iterator[str]:
    for name in start.keys() & end.keys():
        if not torch.equal(start[name], end[name]):
            yield name


def _relative(size: float, scale: float) -> float:
    return 0.0 if size == 0.0 else size / scale if scale > 0.0 else math.inf


def _off(one: Tensor, other: Tensor, scale: float) -> float:
    """Return how far two tensors are from each other, as a fraction of a scale."""
    if one.shape != other.shape:
        return math.inf
    return _relative(distance(one, other), scale)


def _differences(
    found: Mapping[str, float],
    tolerance: float,
    before: Mapping[str, object],
    after: Mapping[str, object],
) -> Differences:
    off = [(name, value) for name, value in found.items() if not value <= tolerance]
    return Differences(
        len(found),
        max(found.values(), default=0.0),
        tuple(sorted(off, key=lambda pair: -pair[1])),
        tuple(name for name in before if name not in after),
        tuple(name for name in after if name not in before),
    )


def _initial(before: Wholes, after: Wholes) -> Differences:
    found = {
        name: _off(was, after[name], norm(was)) for name, was in before.items() if name in after
    }
    return _differences(found, _EXACT, before, after)


def _unclear(gradients: Wholes, tolerance: float) -> dict[str, Tensor]:
    """Return which elements of parameters have gradients that are nothing but rounding, such as the
    bias of an attention's keys, which cancels out. Adam steps as far for them as for others.
    """
    sizes = [float(size.double().square().mean().sqrt()) for size in gradients.values()]
    least = tolerance * statistics.median(sizes or [0.0])
    return {name: (size > 0.0) & (size <= least) for name, size in gradients.items()}


@dataclass(frozen=True)
class Measure:
    """How far what a run has trained and saved is from what another one has.

    Attributes:
        start: parameters before the training.
        unclear: elements of them that are left out.
    """

    start: Wholes
    unclear: Wholes
    tolerance: float

    def parameters(self, before: Wholes, after: Wholes) -> Differences:
        """Compare trained parameters, as fractions of what training has changed in them."""
        found = {
            name: self._off(name, was, after[name]) for name, was in before.items() if name in after
        }
        return _differences(found, self.tolerance, before, after)

    def checkpoint(self, before: Content, after: Content) -> Checkpoint:
        """Compare the contents of two checkpoints."""
        was, now = dict(before.tensors), dict(after.tensors)
        unclear = [name for name in was if self._is_part(name, was) and not _agree(was, now, name)]
        for name in unclear:
            del was[name]
            now.pop(name, None)
        slices = tuple(name for name in was if name in now and _is_slice(was[name], now[name]))
        found = {
            name: self._off(name, tensor, now[name][0])
            for name, (tensor, _) in was.items()
            if name in now and name not in slices and tensor.dtype != torch.uint8
        }
        return Checkpoint(
            before.paths,
            after.paths,
            before.step,
            _differences(found, self.tolerance, was, now),
            _numbers(before.numbers, after.numbers, self.tolerance),
            slices,
            len(unclear),
        )

    def _off(self, name: str, was: Tensor, now: Tensor) -> float:
        """Return how far a tensor is from what it was: a parameter as a fraction of its change."""
        if not was.is_floating_point():
            return 0.0 if torch.equal(was, now) else math.inf
        leave = self.unclear.get(_owner(name))
        if leave is not None and leave.shape == was.shape == now.shape:
            was, now = was.masked_fill(leave, 0.0), now.masked_fill(leave, 0.0)
        start = self.start.get(name)
        if start is None or start.shape != was.shape:
            return _off(was, now, norm(was))
        if leave is not None and leave.shape == start.shape:
            start = start.masked_fill(leave, 0.0)
        return _off(was, now, update_scale(start, was, self.tolerance))

    def _is_part(self, name: str, entries: Entries) -> bool:
        """True if an entry is only a part of what its name says."""
        tensor, complete = entries[name]
        of = self.start.get(_owner(name))
        nameless = _owner(name).startswith("#") and tensor.numel() > 1
        return not complete or nameless or (of is not None and 1 < tensor.numel() != of.numel())


def _owner(name: str) -> str:
    """Return the parameter that an optimizer's state, or a parameter, belongs to by its name."""
    return name.rpartition(" of ")[2]


def _agree(was: Entries, now: Entries, name: str) -> bool:
    """True if both runs saved all of an entry, and in one shape."""
    return name in now and was[name][1] and not _is_slice(was[name], now[name])


def _is_slice(was: tuple[Tensor, bool], now: tuple[Tensor, bool]) -> bool:
    return not now[1] or now[0].shape != was[0].shape


def _numbers(
    before: Mapping[str, float], after: Mapping[str, float], tolerance: float
) -> Differences:
    """Compare single numbers, those that no key of the other run leads to by their last key."""
    now = dict(after)
    for name in [name for name in before if name not in now]:
        last = name.rpartition(".")[2]
        same = [key for key in now if key not in before and key.rpartition(".")[2] == last]
        if len(same) == 1:
            now[name] = now.pop(same[0])
    found = {
        name: 0.0 if _equal(was, now[name]) else _relative(abs(was - now[name]), abs(was))
        for name, was in before.items()
        if name in now and not _CLOCK.search(name)
    }
    return _differences(found, tolerance, before, now)


def _equal(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))
