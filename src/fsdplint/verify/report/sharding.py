"""The sharding map: each model as a tree of FSDP units, with what every rank holds of each.

Equal units beside each other, such as a transformer's blocks, are one node. Remarks sum up the
model's shares, placements and optimizers in words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from fsdplint.verify.events import Parameter, Snapshot, Unit
from fsdplint.verify.figures import count, percent, plural, ranks_in_words
from fsdplint.verify.verdict import Verification

Kept = tuple[tuple[int, int], ...]
"""Per rank, how many elements lie there."""
_MOST_NAMES = 4
_MOST_GROUPS = 3
_ONE_COPY = 1.1


@dataclass(frozen=True, slots=True)
class Piece:
    """A parameter over all ranks; `parameter` is as the first of them has it."""

    parameter: Parameter
    elements: int
    kept: Kept


@dataclass(frozen=True, slots=True)
class Node:
    """A unit, or several that are alike, of which it shows the first.

    Attributes:
        names: of the units, in the model; the root's is empty.
        label: their names, without the parent's.
        others: the other modules of the first one.
        pieces: the first one's own parameters.
        elements: of these in whole; `kept`: of these on each rank.
    """

    names: tuple[str, ...]
    label: str
    cls: str
    api: str
    pieces: tuple[Piece, ...]
    elements: int
    kept: Kept
    children: tuple[Node, ...]
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Model:
    """A model with FSDP units.

    Attributes:
        roots: the outermost units.
        units: how many there are, each one counted.
        outside: parameters of no unit, those that are alike together with their names.
        elements: of the whole model; `kept`: of it on each rank.
    """

    cls: str
    roots: tuple[Node, ...]
    units: int
    outside: tuple[tuple[str, int, Piece], ...]
    pieces: tuple[Piece, ...]
    elements: int
    kept: Kept


def models(verification: Verification) -> list[Model]:
    """Return the models that the ranks saw, each once."""
    by_number: dict[int, dict[int, Snapshot]] = {}
    for rank, snapshots in sorted(verification.snapshots.items()):
        for snapshot in snapshots:
            by_number.setdefault(snapshot.model, {})[rank] = snapshot
    found = [by_rank for _, by_rank in sorted(by_number.items())]
    return [_model(one) for one in found if not any(_inside(one, other) for other in found)]


def _inside(one: Mapping[int, Snapshot], other: Mapping[int, Snapshot]) -> bool:
    """True if a model is a part of another, as blocks are of a root that is no unit."""
    return all(
        rank in other and _units(snapshot) < _units(other[rank]) for rank, snapshot in one.items()
    )


def _units(snapshot: Snapshot) -> set[int]:
    return {unit.number for unit in snapshot.units}


def walk(nodes: Iterable[Node], depth: int = 0) -> Iterable[tuple[int, Node]]:
    """Yield the nodes of a tree with their depth, outer ones first."""
    for node in nodes:
        yield depth, node
        yield from walk(node.children, depth + 1)


def shares(kept: Kept, elements: int) -> tuple[float, ...]:
    """Return each rank's share of 1."""
    return tuple(part / elements if elements else 0.0 for _, part in kept)


def figures(kept: Kept, elements: int) -> tuple[str, str, str]:
    """Return what a rank holds, of how many elements, and the share, from lowest to highest."""
    if not elements:
        return "-", count(elements), ""
    parts = sorted(part for _, part in kept)
    found = sorted(shares(kept, elements))
    return (
        _range(count(parts[0]), count(parts[-1])),
        count(elements),
        _range(percent(found[0]).removesuffix("%"), percent(found[-1])),
    )


def _range(least: str, most: str) -> str:
    return most if least == most.removesuffix("%") else f"{least}-{most}"


def placed(piece: Piece) -> str:
    """Describe in words how a parameter lies on its mesh."""
    parameter = piece.parameter
    copies = max(1, round(sum(part for _, part in piece.kept) / (piece.elements or 1)))
    ranks = plural(len(piece.kept) // copies, "rank")
    times = f", {copies} copies" * (copies > 1)
    if parameter.flat:
        return f"flattened and sharded over {ranks}{times}"
    if not parameter.placements and any(part != piece.elements for _, part in piece.kept):
        return f"sharded over {ranks} with its unit's other parameters{times}"
    if not parameter.placements:
        return "whole on each rank"
    names = parameter.mesh_names or ("",) * len(parameter.mesh)
    return ", ".join(
        f"{_placement(placement)} over {plural(size, 'rank')}{f' (mesh dim {name})' * bool(name)}"
        for placement, name, size in zip(parameter.placements, names, parameter.mesh, strict=False)
    )


def _placement(text: str) -> str:
    """Return one spelling of ``Shard(dim=0)`` (torch 2.6), ``Shard(0)`` and ``S(0)`` (later)."""
    text = re.sub(r"^S\(", "Shard(", text).replace("dim=", "")
    return {"R": "Replicate", "Replicate()": "Replicate"}.get(text, text)


def _model(by_rank: Mapping[int, Snapshot]) -> Model:
    """Put a model together from what each rank saw of it."""
    first = next(iter(by_rank.values()))
    units = {rank: {unit.name: unit for unit in s.units} for rank, s in by_rank.items()}
    names = list(dict.fromkeys(name for found in units.values() for name in found))
    nodes = {
        name: _node(name, {rank: found[name] for rank, found in units.items() if name in found})
        for name in names
    }
    outside = _pieces({rank: snapshot.outside for rank, snapshot in by_rank.items()})
    pieces = (*(piece for node in nodes.values() for piece in node.pieces), *outside)
    return Model(
        first.cls,
        _tree(None, nodes),
        len(nodes),
        _alike(outside),
        pieces,
        sum(piece.elements for piece in pieces),
        _sum(pieces),
    )


def _node(name: str, by_rank: Mapping[int, Unit]) -> Node:
    unit = next(iter(by_rank.values()))
    pieces = _pieces({rank: unit.parameters for rank, unit in by_rank.items()})
    elements = sum(piece.elements for piece in pieces)
    kept = _sum(pieces)
    return Node((name,), name, unit.cls, unit.api, pieces, elements, kept, (), unit.others)


def _pieces(by_rank: Mapping[int, Sequence[Parameter]]) -> tuple[Piece, ...]:
    """Return the parameters over all ranks, by name."""
    found: dict[str, dict[int, Parameter]] = {}
    for rank, parameters in by_rank.items():
        for parameter in parameters:
            found.setdefault(parameter.name, {})[rank] = parameter
    return tuple(
        Piece(
            parameter := next(iter(ranks.values())),
            prod(parameter.shape),
            tuple((rank, prod(part.local_shape)) for rank, part in ranks.items()),
        )
        for ranks in found.values()
    )


def _sum(pieces: Iterable[Piece]) -> Kept:
    total: dict[int, int] = {}
    for piece in pieces:
        for rank, part in piece.kept:
            total[rank] = total.get(rank, 0) + part
    return tuple(sorted(total.items()))


def _tree(parent: str | None, nodes: Mapping[str, Node]) -> tuple[Node, ...]:
    """Return the nodes right below `parent` with theirs, those that are alike as one."""
    groups: dict[object, list[Node]] = {}
    for name, node in nodes.items():
        if _parent(name, nodes) == parent:
            label = ", ".join(_short(each, parent) for each in (name, *node.others))
            whole = replace(node, label=label, children=_tree(name, nodes))
            groups.setdefault(_look(whole, name), []).append(whole)
    return tuple(_merged(group) for group in groups.values())


def _parent(name: str, names: Iterable[str]) -> str | None:
    """Return the innermost name around `name`, the root's being empty."""
    around = [n for n in names if n != name and (not n or name.startswith(f"{n}."))]
    return max(around, key=len, default=None)


def _short(name: str, parent: str | None) -> str:
    return name.removeprefix(f"{parent}.") if parent else name


def _merged(group: Sequence[Node]) -> Node:
    names = tuple(node.names[0] for node in group)
    return replace(group[0], names=names, label=run_label([node.label for node in group]))


def run_label(names: Sequence[str]) -> str:
    """Return a label of the first and last name, the second without their common prefix."""
    first, last = names[0], names[-1]
    if first == last:
        return first
    pairs = enumerate(zip(first, last, strict=False))
    common = next((at for at, (one, other) in pairs if one != other), len(first))
    return f"{first} … {last[first.rfind('.', 0, common) + 1 :]}"


def _look(node: Node, name: str) -> tuple[object, ...]:
    """Return what units share that are drawn as one."""
    return (
        _pattern(node.label),
        node.cls,
        node.api,
        tuple(_piece_look(piece, name) for piece in node.pieces),
        tuple((len(child.names), _look(child, child.names[0])) for child in node.children),
    )


def _piece_look(piece: Piece, unit: str) -> object:
    p = piece.parameter
    name = p.name.removeprefix(f"{unit}.") if unit else _pattern(p.name)
    return (name, p.shape, p.dtype, p.placements, p.mesh, p.trainable, p.held, p.flat, piece.kept)


def _pattern(name: str) -> str:
    return re.sub(r"\d+", "#", name)


def _alike(pieces: Sequence[Piece]) -> tuple[tuple[str, int, Piece], ...]:
    groups: dict[object, list[Piece]] = {}
    for piece in pieces:
        look = (_pattern(piece.parameter.name), piece.parameter.ignored, _piece_look(piece, ""))
        groups.setdefault(look, []).append(piece)
    return tuple(
        (run_label([piece.parameter.name for piece in group]), len(group), group[0])
        for group in groups.values()
    )


def counts(model: Model) -> str:
    """Return how large the model is."""
    apis = " and ".join(sorted({node.api.upper() for _, node in walk(model.roots)}))
    return (
        f"{plural(model.units, f'{apis} unit')}, "
        f"{plural(len(model.pieces), 'parameter')}, {plural(model.elements, 'element')}"
    )


def remarks(model: Model, world_size: int) -> Iterator[str]:
    """Yield sentences on the whole model; a model without parameters has none."""
    if not model.pieces:
        return
    copies = sum(shares(model.kept, model.elements))
    together = f"; {copies:.1f} copies in total" if copies > _ONE_COPY else ""
    yield f"{_shares(model)} (an even split is {percent(1 / world_size)}{together})"
    yield from _placements(model)
    yield from _optimizers(model)


def _shares(model: Model) -> str:
    found = shares(model.kept, model.elements)
    by_share: dict[str, list[int]] = {}
    for (rank, _), share in zip(model.kept, found, strict=True):
        by_share.setdefault(percent(share), []).append(rank)
    if len(by_share) == 1:
        return f"each rank holds {next(iter(by_share))} of the model"
    if len(by_share) > _MOST_GROUPS:
        return f"ranks hold {percent(min(found))} to {percent(max(found))} of the model"
    (most, group), *rest = by_share.items()
    first = f"{ranks_in_words(group)} hold{'s'[: len(group) == 1]} {most} of the model"
    return ", ".join([first, *(f"{ranks_in_words(group)} {share}" for share, group in rest)])


def _placements(model: Model) -> Iterator[str]:
    groups: dict[str, list[Piece]] = {}
    for piece in model.pieces:
        frozen = "" if piece.parameter.trainable else ", frozen"
        groups.setdefault(f"{piece.parameter.dtype}, {placed(piece)}{frozen}", []).append(piece)
    for look, pieces in groups.items():
        few = f" ({_names(pieces)})" if len(groups) > 1 and len(pieces) <= _MOST_NAMES else ""
        originals = sum(piece.parameter.flat for piece in pieces)
        noun = "flat parameter" if originals else "parameter"
        made = f" of {plural(originals, 'original parameter')}" if originals else ""
        yield f"{plural(len(pieces), noun)}{made}{few}: {look}"


def _optimizers(model: Model) -> Iterator[str]:
    """Yield which trainable parameters are in optimizers, and which are in none."""
    trainable = [piece for piece in model.pieces if piece.parameter.trainable]
    held = {number for piece in trainable for number in piece.parameter.held}
    for number in sorted(held):
        mine = sum(number in piece.parameter.held for piece in trainable)
        which = "the optimizer" if held == {0} else f"optimizer {number}"
        noun = "trainable parameter" + "s"[: len(trainable) != 1]
        yield f"{which} holds {_of(mine, len(trainable))} {noun}"
    idle = [piece for piece in trainable if not piece.parameter.held]
    if idle and len(idle) == len(trainable):
        yield f"none of the {len(trainable)} trainable parameters is in an optimizer"
    elif idle:
        which = f"{len(idle)} of {len(trainable)} trainable parameters"
        yield f"{which} {'is' if len(idle) == 1 else 'are'} in no optimizer ({_names(idle)})"


def _of(part: int, whole: int) -> str:
    if part == whole:
        return "the" if whole == 1 else f"all {whole}"
    return f"{part} of {whole}"


def _names(pieces: list[Piece]) -> str:
    names = [piece.parameter.name for piece in pieces]
    if len(names) <= _MOST_NAMES:
        return ", ".join(names)
    return f"{', '.join(names[:_MOST_NAMES])} and {len(names) - _MOST_NAMES} more"
