"""Which checkpoints of two runs belong together, and what is in them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath

import torch
from torch import Tensor

from fsdplint.verify.rank.equivalence.records import Parts, Saved, whole

Ranks = Mapping[int, list[Saved]]


@dataclass(frozen=True)
class Content:
    """What was saved under some paths.

    Attributes:
        tensors: by name, and whether all of it was saved.
    """

    paths: tuple[str, ...]
    step: int
    tensors: dict[str, tuple[Tensor, bool]]
    numbers: dict[str, float]


def pairs(before: Ranks, after: Ranks) -> Iterator[tuple[Content, Content]]:
    """Yield contents that belong together: of one path, as they were written last; of other paths,
    all that was written after one step under similar names, or under none."""
    first, second = _by_path(before), _by_path(after)
    for path in first:
        if path in second:
            yield _content(first[path]), _content(second[path])
    rest = [
        [s for path, s in one.items() if path not in other]
        for one, other in ((first, second), (second, first))
    ]
    steps = dict.fromkeys(saved[0].step for of in rest for saved in of)
    for step in steps:
        one, other = ([s for saved in of if saved[0].step == step for s in saved] for of in rest)
        (mine, lost), (theirs, new) = _similar(one, other), _similar(other, one)
        for pair in ((mine, theirs), (lost, []), ([], new)):
            if any(pair):
                yield _content(pair[0], step), _content(pair[1], step)


def _similar(saved: list[Saved], others: list[Saved]) -> tuple[list[Saved], list[Saved]]:
    """Divide files by whether one of the others has the same name, apart from numbers and its end.

    What another statement of the program writes, such as a backup, has another name.
    """
    names = set(map(_name, others))
    found: tuple[list[Saved], list[Saved]] = [], []
    for each in saved:
        name = _name(each)
        found[not any(name.startswith(n) or n.startswith(name) for n in names)].append(each)
    return found


def _name(saved: Saved) -> str:
    return re.sub(r"\d+", "", PurePath(saved.path).stem)


def _by_path(ranks: Ranks) -> dict[str, list[Saved]]:
    """Return what is under each path at the end: of ranks that write one file, the first's."""
    found: dict[str, dict[int, Saved]] = {}
    for rank, saved in ranks.items():
        for each in saved:
            if each.path:
                found.setdefault(each.path, {})[rank] = each
    return {
        path: list(of.values())
        if all(s.together for s in of.values())
        else [next(iter(of.values()))]
        for path, of in found.items()
    }


def _content(saved: list[Saved], step: int = -1) -> Content:
    tensors: dict[str, tuple[Tensor, bool]] = {}
    for name in dict.fromkeys(name for each in saved for name in each.tensors):
        tensors.update(_tensor(name, saved))
    return Content(
        tuple(dict.fromkeys(each.path for each in saved)),
        saved[0].step if saved else step,
        tensors,
        {name: value for each in saved for name, value in each.numbers.items()},
    )


def _tensor(name: str, saved: list[Saved]) -> Iterator[tuple[str, tuple[Tensor, bool]]]:
    """Yield a tensor that several paths hold: once if they hold parts of it or the same, else with
    the path in its name."""
    by_path: dict[str, Parts] = {}
    for each in saved:
        by_path.setdefault(each.path, {}).setdefault(name, []).extend(each.tensors.get(name, ()))
    wholes = {path: whole(parts[name]) for path, parts in by_path.items() if parts[name]}
    complete = [tensor for tensor, is_complete in wholes.values() if is_complete]
    if not complete:
        yield name, whole(part for parts in by_path.values() for part in parts[name])
    elif all(torch.equal(complete[0], tensor) for tensor in complete):
        yield name, (complete[0], True)
    else:
        yield from ((f"{path}: {name}", found) for path, found in wholes.items())
