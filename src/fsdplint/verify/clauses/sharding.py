"""What is sharded, how far, in which order, and what is left out; FSDP1 calls on FSDP2 models."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from fsdplint.verify.clauses.clause import clause, confirmed, not_exercised, violated
from fsdplint.verify.clauses.queries import (
    CLIPPING_OR_STEP,
    MIXED,
    changes,
    crashes,
    first_snapshots,
    inside,
    listed,
    own_place,
    parameters,
    part,
    refusals,
    shard_degree,
    shards_held,
    whole,
)
from fsdplint.verify.events import (
    FAILED,
    Ended,
    Fsdp1Call,
    Initial,
    Parameter,
    Place,
    Sharded,
    Snapshot,
    Step,
    Unit,
)
from fsdplint.verify.evidence import RankRun, Run
from fsdplint.verify.figures import plural
from fsdplint.verify.verdict import Verdict

_LEAST = 0.05
"""The share of a model's parameters from which its largest container of blocks is worth units."""
_METHODS = frozenset(
    {
        *("clip_grad_norm_", "summon_full_params", "module", "_fsdp_wrapped_module"),
        *("state_dict_type", "set_state_dict_type", "get_state_dict_type", "fsdp_modules"),
        *("optim_state_dict", "optim_state_dict_to_load", "full_optim_state_dict"),
        *("sharded_optim_state_dict", "shard_full_optim_state_dict", "check_is_root"),
        *("scatter_full_optim_state_dict", "flatten_sharded_optim_state_dict"),
        *("rekey_optim_state_dict", "register_comm_hook"),
    }
)
"""What an FSDP1 module has and an FSDP2 module lacks (torch 2.6 to 2.15); `no_sync` is judged by
`accumulation`."""


@dataclass(frozen=True, slots=True)
class _Held:
    """A parameter of a unit, as a rank holds it."""

    rank: int
    unit: Unit
    parameter: Parameter


@clause(
    "units",
    "Each rank holds only its share of every FSDP unit's parameters.",
    ("sharding", "optimizer", "snapshot"),
)
def units(run: Run) -> Verdict:
    """Judge local against global elements of the parameters in units, on every rank."""
    if not run.all(Sharded):
        return not_exercised("no module became an FSDP unit")
    held = [
        _Held(rank.rank, unit, parameter)
        for rank in run.ranks
        for snapshot in first_snapshots(rank)
        for unit, parameter in parameters(snapshot)
        if unit is not None and whole(parameter)
    ]
    if not held:
        return not_exercised("no sharded model reached an optimizer step or the end of the script")
    figures, least = _kept(held)
    layouts = tuple(_layouts([each.parameter for each in held]))
    if run.world_size == 1:
        return not_exercised(f"{figures}; there is only one rank")
    if least < 1:
        return confirmed(figures, layouts)
    if all(each.unit.api == "fsdp1" for each in held):
        return not_exercised(f"{figures}; `NO_SHARD`, or a process group of one rank")
    if all(shard_degree(each.parameter) == 1 for each in held):
        return not_exercised(f"{figures}; {'; '.join(layouts)} shards over one rank")
    places = tuple(event.place for _, event in run.all(Sharded))
    return violated(f"{figures}: nothing is sharded", layouts, places)


def _kept(held: list[_Held]) -> tuple[str, float]:
    """Return what the ranks hold of the units, in words, and the smallest share of any rank."""
    by_rank: dict[int, list[_Held]] = {}
    for each in held:
        by_rank.setdefault(each.rank, []).append(each)
    total = [sum(whole(e.parameter) for e in mine) for mine in by_rank.values()]
    kept = [sum(part(e.parameter) for e in mine) for mine in by_rank.values()]
    shares = [have / of for have, of in zip(kept, total, strict=True)]
    number = max(len({e.unit.number for e in mine}) for mine in by_rank.values())
    figures = (
        f"{plural(number, 'unit')}, {plural(max(map(len, by_rank.values())), 'parameter')}; "
        f"each rank holds {_shares(shares)} of {max(total):,} elements"
    )
    return figures, min(shares)


def _shares(shares: list[float]) -> str:
    low, high = (f"{100 * share:.1f}%" for share in (min(shares), max(shares)))
    return low if low == high else f"{low} to {high}"


def _layouts(held: list[Parameter]) -> list[str]:
    """Return a line per placement and mesh in use."""
    found: dict[str, int] = {}
    for parameter in held:
        if parameter.placements:
            mesh = "x".join(map(str, parameter.mesh))
            names = f" {'/'.join(parameter.mesh_names)}" if parameter.mesh_names else ""
            found.setdefault(f"({', '.join(parameter.placements)}) on mesh {mesh}{names}", 0)
    return list(found)


@clause("blocks", "Each repeated block is its own FSDP unit.", ("sharding", "snapshot"))
def blocks(run: Run) -> Verdict:
    """Judge whether units divide the blocks: one that gathers all at once saves little memory."""
    if _late([event for _, event in run.all(Sharded)]):
        return not_exercised("units were sharded in the wrong order (see `sharding-order`)")
    seen = [judged for rank in run.ranks for s in first_snapshots(rank) for judged in _blocks(s)]
    if not seen:
        return not_exercised(_why_no_blocks(run))
    bad = [text for text, fine in seen if not fine]
    if not bad:
        return confirmed("; ".join(dict.fromkeys(text for text, _ in seen)))
    return violated("; ".join(dict.fromkeys(bad)), (), _outermost_places(run))


def _why_no_blocks(run: Run) -> str:
    seen = [s for rank in run.ranks for s in first_snapshots(rank)]
    if seen and all(unit.ranks == 1 for s in seen for unit in s.units if unit.parameters):
        return "each unit spans one rank, so nothing is gathered"
    if any(s.repeated for s in seen):
        return "repeated blocks hold few of the sharded parameters, or are parts of a smaller unit"
    return "no sharded model with repeated blocks was seen"


def _blocks(snapshot: Snapshot) -> list[tuple[str, bool]]:
    """Judge the container of blocks that holds most: a text, and whether units divide it."""
    owners = _owners(snapshot)
    total = sum(size for _, size in owners.values())
    held = {children: _owned(children, owners) for children in snapshot.repeated}
    largest = max(held, key=lambda children: sum(size for _, size in held[children]), default=())
    size = sum(size for _, size in held.get(largest, []))
    if not total or size < _LEAST * total:
        return []
    holders = {number for number, _ in held[largest]}
    if len(holders) == 1 and not _gathers_most(snapshot, next(iter(holders))):
        return []  # parts of a unit that is a part itself, or that gathers nothing
    container = largest[0].rpartition(".")[0]
    name = f"`{container}`" if container else "the model"
    share = f"{100 * size / total:.0f}% of the sharded parameters"
    if not any(parameter.held for _, parameter in parameters(snapshot)):
        share += f" of `{snapshot.cls}`, which no optimizer trains"
    found = f"{len(largest)} blocks ({share})"
    if len(holders) > 1:
        return [(f"{name}: {found} in {len(holders)} units", True)]
    return [(f"{name}: one unit gathers all {found} at once", False)]


def _owners(snapshot: Snapshot) -> dict[str, tuple[int, int]]:
    """Return the unit and the elements of each sharded parameter, flattened ones by their own
    names."""
    owners = {}
    for unit, parameter in parameters(snapshot):
        if unit is not None:
            sizes = {original.name: original.elements for original in parameter.originals}
            for name, size in (sizes or {parameter.name: whole(parameter)}).items():
                owners[name] = (unit.number, size)
    return owners


def _gathers_most(snapshot: Snapshot, number: int) -> bool:
    """True if a unit has no other one around it, and gathers most of the parameters."""
    unit = next(unit for unit in snapshot.units if unit.number == number)
    around = any(
        other is not unit and (not other.name or unit.name.startswith(f"{other.name}."))
        for other in snapshot.units
    )
    total = sum(whole(p) for u in snapshot.units for p in u.parameters)
    return unit.ranks != 1 and not around and 2 * sum(map(whole, unit.parameters)) > total


def _owned(children: tuple[str, ...], owners: dict[str, tuple[int, int]]) -> list[tuple[int, int]]:
    """Return unit and elements of each sharded parameter under some blocks."""
    return [
        owned
        for name, owned in owners.items()
        if any(name.startswith(f"{child}.") for child in children)
    ]


def _outermost_places(run: Run) -> tuple[Place | None, ...]:
    events = [event for _, event in run.all(Sharded)]
    largest = max((event.total for event in events), default=0)
    return tuple(event.place for event in events if event.total == largest)


@clause(
    "sharding-order",
    "Inner modules are sharded before the modules that contain them.",
    ("sharding",),
)
def sharding_order(run: Run) -> Verdict:
    """Judge the order of calls: blocks cannot take parameters that the root already owns."""
    events = [event for _, event in run.all(Sharded)]
    if len({event.unit for event in events}) < 2:
        return not_exercised("fewer than two units")
    late = _late(events)
    if not late:
        return confirmed(f"{plural(len({e.unit for e in events}), 'unit')}, inner ones first")
    outer = {event.unit: event for event in events}
    first = late[0]
    around = outer.get(first.inside if first.inside is not None else -1)
    what = f"`{first.cls}` is sharded after `{around.cls if around else '?'}`, which contains it"
    where = (f"`{around.cls}` is sharded at {around.place}",) if around else ()
    return violated(f"{what} and already owns its parameters", where, tuple(e.place for e in late))


def _late(events: list[Sharded]) -> list[Sharded]:
    """Return the units whose parameters a module around them already owned."""
    return [event for event in events if event.lost]


@clause(
    "coverage",
    "Every trainable parameter belongs to a unit, or its replicas stay equal.",
    ("sharding", "optimizer", "step"),
)
def coverage(run: Run) -> Verdict:
    """Judge what no unit holds: nothing synchronizes it, so each rank trains its own copy."""
    alike = _begun_alike(run)
    outside = dict.fromkeys(name for rank in run.ranks for _, name in _outside(rank, alike))
    drifting = _drifting(run)
    if not any(first_snapshots(rank) for rank in run.ranks):
        return not_exercised("no sharded model reached an optimizer step")
    own = _ignored_and_trained(run) - {*outside}
    if not outside and not drifting and own:
        return not_exercised(
            f"{plural(len(own), 'ignored parameter')} in an optimizer ({listed(sorted(own))}) "
            f"{'has' if len(own) == 1 else 'have'} different values on each rank from the start, "
            "as experts do"
        )
    failed = any(rank.ended and rank.ended.how in FAILED for rank in run.ranks)
    if not outside and not drifting and failed and not run.all(Step):
        return not_exercised("the script failed before its first optimizer step")
    if not outside and not drifting:
        return confirmed("no trainable parameter is outside the units")
    places = _outermost_places(run)
    mixed = [e for _, e in crashes(run, MIXED) if inside(e, CLIPPING_OR_STEP)]
    if mixed:
        return violated(
            f"{plural(len(outside), 'trainable parameter')} in no unit: {listed(outside)}",
            (f"{mixed[0].kind}: {mixed[0].message}",),
            (own_place(mixed[0]), *places),
        )
    if drifting:
        first = min(drifting.values())
        return violated(
            f"{plural(len(drifting), 'trainable parameter')} in no unit "
            f"differ{'s' * (len(drifting) == 1)} between ranks since step {first}: "
            f"{listed(drifting)}",
            (),
            places,
        )
    return not_exercised(
        f"{plural(len(outside), 'trainable parameter')} in no unit ({listed(outside)}), equal on "
        "every rank so far; nothing was seen that keeps them equal"
    )


def _outside(
    rank: RankRun, alike: Container[tuple[int, str]] = ()
) -> dict[tuple[int, str], tuple[tuple[int, ...], tuple[int, ...]]]:
    """Return the parameters outside every unit, by model and name: which part of each the rank
    holds, and which ranks share a model with it; none if that is unknown.

    Ignored ones are left out, unless an optimizer holds them and they are in ``alike``. The stages
    of a pipeline, say, are models apart, though their parameters may be called alike.
    """
    found = {}
    for snapshot in first_snapshots(rank):
        together = {other for unit in snapshot.units for p in unit.parameters for other in p.ranks}
        for p in snapshot.outside:
            wanted = not p.ignored or (p.held and (snapshot.model, p.name) in alike)
            if p.trainable and wanted:
                found[snapshot.model, p.name] = shards_held(p), tuple(sorted(together))
    return found


def _ignored_and_trained(run: Run) -> set[str]:
    return {
        p.name
        for rank in run.ranks
        for snapshot in first_snapshots(rank)
        for p in snapshot.outside
        if p.ignored and p.trainable and p.held
    }


def _drifting(run: Run) -> dict[str, int]:
    """Return the names outside every unit whose values differ between ranks, each with the first
    step where they do."""
    values: dict[tuple[int, str, object], set[str]] = {}
    alike = _begun_alike(run)
    for rank in run.ranks:
        outside = _outside(rank, alike)
        for step, change in changes(rank):
            key = change.model, change.name
            if key in outside:
                copy = step.number, change.name, (step.optimizer, change.model, outside[key])
                values.setdefault(copy, set()).add(change.digest)
    found: dict[str, int] = {}
    for (number, name, _), digests in sorted(values.items()):
        if len(digests) > 1:
            found.setdefault(name, number)
    return found


def _begun_alike(run: Run) -> set[tuple[int, str]]:
    """Return the parameters, by model and name, that start with the same values on every rank.

    Experts that are spread over the ranks, for example, differ.
    """
    begun: dict[tuple[int, str], set[str]] = {}
    for _, event in run.all(Initial):
        for value in event.values:
            begun.setdefault((event.model, value.name), set()).add(value.digest)
    return {key for key, digests in begun.items() if len(digests) == 1}


@clause(
    "fsdp1-calls",
    "No FSDP1 API is called on an FSDP2 model.",
    ("fsdp1-calls", "sharding"),
)
def fsdp1_calls(run: Run) -> Verdict:
    """Judge calls of FSDP1's API, most of which silently do nothing on FSDP2 models."""
    if not _units(run):
        return not_exercised("no module was sharded by `fully_shard`")
    refused = [(name, ended) for name, ended in refusals(run) if name in _METHODS]
    calls = [event for _, event in run.all(Fsdp1Call)]
    if calls:
        return _called(calls, [ended for _, ended in refused])
    if refused:
        name, ended = refused[0]
        figures = f"the script uses `{name}`, which FSDP2 modules do not have"
        details = (f"{ended.kind}: {ended.message}",)
        return violated(figures, details, (own_place(ended),))
    if any(rank.ended is None or rank.ended.how in FAILED for rank in run.ranks):
        return not_exercised("no FSDP1 call before the script failed")
    return confirmed(f"no FSDP1 call on {plural(_units(run), 'FSDP2 unit')}")


def _units(run: Run) -> int:
    return len({event.unit for _, event in run.all(Sharded) if event.api == "fsdp2"})


def _called(calls: list[Fsdp1Call], ended: list[Ended]) -> Verdict:
    names = list(dict.fromkeys(f"`{call.name}`" for call in calls))
    return violated(
        f"{', '.join(names)} of `FullyShardedDataParallel` called on `{calls[0].cls}`, which is an "
        "FSDP2 model",
        tuple(f"{e.kind}: {e.message}" for e in ended),
        tuple(call.place for call in calls),
    )
