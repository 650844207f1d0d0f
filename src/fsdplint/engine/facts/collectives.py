"""Collectives, and those that some ranks of a run do not reach."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.engine.events import Call, PlainWrite, Shard, Trace
from fsdplint.engine.facts.filled_in import is_given
from fsdplint.engine.facts.sharding import is_summoned
from fsdplint.engine.program import Program
from fsdplint.engine.site import EVERY_RANK, Guard, Site
from fsdplint.engine.values import (
    Const,
    Object,
    Parameters,
    StateDict,
    Symbol,
    Value,
    class_names,
    contained,
    resolved,
)
from fsdplint.knowledge import collectives as known
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.words import means_rank_count


@dataclass(frozen=True, slots=True)
class Collective:
    """A call that ``ranks`` make, out of the ``participants`` that all have to.

    Attributes:
        shard: what makes it a collective; for one that is always, the first sharding call.
    """

    call: Call
    shard: Shard
    participants: frozenset[int]
    ranks: frozenset[int]


@dataclass(frozen=True, slots=True)
class MissedCollective:
    """A collective that some of its ranks surely do not reach, and nothing makes up for it.

    Attributes:
        guards: the branches that keep them away, outermost first.
        chain: from the function of the first guard to the collective, one node per function.
        writes: what the function of the first guard calls there writes files, by the same ranks.
    """

    collective: Collective
    guards: tuple[Guard, ...]
    chain: tuple[tuple[str, ir.Node], ...]
    writes: bool


def missed_collectives(program: Program) -> Iterator[MissedCollective]:
    """For every branch by the rank, the first collective that each call below it leads to."""
    for trace in program.traces:
        seen: set[tuple[ir.Node, ir.Node]] = set()
        for collective in _unmatched(trace):
            fact = _missed(program, trace, collective)
            place = (fact.guards[0].test, fact.chain[0][1])
            site = collective.call.site
            unsure = any(_is_unsure(program, site, guard) for guard in site.guards)
            unsure = unsure or _is_whole(program, collective)
            if place not in seen and not unsure and program.together(site, collective.shard.site):
                seen.add(place)
                yield fact


def _is_unsure(program: Program, site: Site, guard: Guard) -> bool:
    return _runs_alone(program, guard) or is_given(program, site, guard)


def _is_whole(program: Program, collective: Collective) -> bool:
    """Whether FSDP1 has gathered the model already, for a ``with FSDP.summon_full_params(…)``."""
    call, flat = collective.call, collective.shard.generation is Generation.FSDP1
    return flat and call.receiver is not None and is_summoned(program, call.site)


def _missed(program: Program, trace: Trace, collective: Collective) -> MissedCollective:
    site = collective.call.site
    guards = tuple(g for g in site.guards if not g.ranks >= collective.participants)
    frames = site.frames()
    first = guards[0]
    function = program.tree(first.path).function(first.test)
    start = len(frames) - 1
    for index, (path, node) in enumerate(frames):
        if path == first.path and program.tree(path).function(node) is function:
            start = index
    writes = any(_writes_below(event, frames[start], first) for event in trace.of(PlainWrite))
    return MissedCollective(collective, guards, frames[start:], writes)


def _writes_below(write: PlainWrite, call: tuple[str, ir.Node], guard: Guard) -> bool:
    """Whether a file is written below a call with no test of the rank but this one."""
    tests = {each.test for each in write.site.guards if each.ranks != EVERY_RANK}
    return call in write.site.calls and tests <= {guard.test}


# Which ranks


def _unmatched(trace: Trace) -> list[Collective]:
    """The collectives that some ranks skip and that no call by those very ranks answers."""
    partial: dict[str, list[Collective]] = {}
    for collective in _collectives(trace):
        if collective.ranks and collective.ranks < collective.participants:
            partial.setdefault(collective.call.name, []).append(collective)
    left = [one for alike in partial.values() for one in _without_pairs(alike)]
    left = [one for one in left if not _may_be_answered(trace, one)]
    return sorted(left, key=lambda one: one.call.time)


def _without_pairs(alike: list[Collective]) -> list[Collective]:
    """Those left when calls of one kind that together are made by every rank are taken out."""
    left = list(alike)
    for one in alike:
        if one not in left:
            continue
        group, missing = [one], one.participants - one.ranks
        for other in left:
            if other.participants == one.participants and other.ranks <= missing:
                group.append(other)
                missing -= other.ranks
        if not missing:
            left = [each for each in left if each not in group]
    return left


def _may_be_answered(trace: Trace, one: Collective) -> bool:
    """Whether the ranks that are missing run code that is not known, or not to its end.

    A barrier may be met anywhere; what belongs to a model, in the other arm of the same test.
    """
    missing = one.participants - one.ranks
    tests = {guard.test for guard in one.call.site.guards if guard.ranks != EVERY_RANK}
    anywhere = one.call.name in known.C10D_CALLS
    for escape in trace.escapes:
        ranks = escape.site.ranks() & one.participants
        other_arm = any(guard.test in tests for guard in escape.site.guards)
        if ranks and ranks <= missing and (anywhere or other_arm):
            return True
    return anywhere and not trace.complete


# Which calls


def _collectives(trace: Trace) -> Iterator[Collective]:
    shards = trace.of(Shard)
    if not shards:
        return
    # Some ranks shard and the others do something else: who talks to whom is not known.
    roles = any(shard.site.ranks() != EVERY_RANK for shard in shards)
    for call in trace.of(Call):
        before = [shard for shard in shards if shard.time < call.time]
        shard = _needs(trace, call, before)
        if shard is None and not roles and call.name in known.WORLD_CALLS and _by_all(call):
            shard = shards[0]
        if shard is None:
            continue
        participants = shard.site.ranks()
        yield Collective(call, shard, participants, call.site.ranks() & participants)


def _by_all(call: Call) -> bool:
    """Whether a call of c10d or of a distributed checkpoint is one of all ranks."""
    group = known.WORLD_CALLS[call.name]
    given = call.argument(group.position, group.keyword)
    whole = given is None or (isinstance(given, Const) and given.value is None)
    whole = whole or (isinstance(given, Symbol) and given.name.endswith("group.WORLD"))
    keywords = call.arguments.keywords
    alone = [keywords[name] for name in known.ALONE_KEYWORDS & keywords.keys()]
    together = all(isinstance(value, Const) and not value.value for value in alone)
    return whole and together and not call.arguments.open


def _needs(trace: Trace, call: Call, shards: list[Shard]) -> Shard | None:
    """The sharding call that makes ``call`` a collective, if one does."""
    receiver = None if call.receiver is None else resolved(call.receiver)
    if receiver is None:
        return _function_needs(call, shards)
    if call.name in known.TENSOR_METHODS:
        return _holder(_owner(receiver), shards)
    if not isinstance(receiver, Object):
        return None
    if call.site in trace.inside:
        shards = [shard for shard in shards if not _wraps_only(shard, receiver)]
    if call.name == "forward" or call.name in known.UNIT_METHODS:
        return _unit(receiver, shards)
    if call.name in known.FSDP1_METHODS and not _local_state(trace, call):
        found = _unit(receiver, [s for s in shards if s.generation is Generation.FSDP1])
        if found is not None:
            return found
    accelerator = any(name.startswith("accelerate.") for name in class_names(receiver.cls))
    if accelerator and call.name in known.ACCELERATOR_METHODS:
        return shards[0] if shards else None
    return None


def _function_needs(call: Call, shards: list[Shard]) -> Shard | None:
    fsdp1 = [shard for shard in shards if shard.generation is Generation.FSDP1]
    fsdp2 = [shard for shard in shards if shard.generation is Generation.FSDP2]
    if call.name in known.FSDP1_CALLS:
        return _unit(call.argument(known.FSDP1_CALLS[call.name], "model"), fsdp1) or _unit(
            call.argument(known.FSDP1_CALLS[call.name], "module"), fsdp1
        )
    if call.name in known.STATE_CALLS:
        model = call.argument(0, "model")
        return _unit(model, fsdp1) or (_unit(model, fsdp2) if _whole_state(call) else None)
    if call.name in known.NORM_CALLS:
        found = [
            _holder(_owner(item), fsdp2)
            for value in call.arguments.values()[:1]
            for item in contained(value)
        ]
        return next((shard for shard in found if shard is not None), None)
    return None


def _whole_state(call: Call) -> bool:
    options = call.argument(99, "options")
    if not isinstance(options, Object):
        return False
    values = [options.keywords.get(name) for name in known.WHOLE_STATE_OPTIONS]
    return any(isinstance(value, Const) and value.value is True for value in values)


def _wraps_only(shard: Shard, module: Object) -> bool:
    """Whether a call makes FSDP1's wrapper around ``module``, and no unit inside that is known."""
    outside = shard.module is module or shard.module in module.ancestors()
    return outside and shard.wraps_children is not True


def _unit(module: Value | None, shards: list[Shard]) -> Shard | None:
    """What sharded ``module`` or a part of it, so that to run it gathers."""
    if not isinstance(module, Object):
        return None
    return next((s for s in shards if _shards(s) and _within(s.module, module)), None)


def _holder(module: Object | None, shards: list[Shard]) -> Shard | None:
    """What sharded the parameters of ``module``: a call on it, around it or inside it."""
    if module is None:
        return None
    around = (s for s in shards if s.generation is Generation.FSDP2 and _within(module, s.module))
    return _unit(module, [s for s in shards if s.generation is Generation.FSDP2]) or next(
        around, None
    )


def _within(part: Object, whole: Object) -> bool:
    return part is whole or whole in part.ancestors()


def _owner(value: Value) -> Object | None:
    """The module whose parameter, gradient or state a value is."""
    if isinstance(value, Parameters):
        return value.module
    if isinstance(value, StateDict):
        return value.owner if value.optimizer is None else None
    return value.parent if isinstance(value, Object) else None


def _shards(shard: Shard) -> bool:
    """Not FSDP1 as a kind of DDP, where every rank has everything."""
    strategy = shard.keywords.get("sharding_strategy")
    text = strategy.name if isinstance(strategy, Symbol) else ""
    return not text.endswith("NO_SHARD")


def _local_state(trace: Trace, call: Call) -> bool:
    """Whether FSDP1's state may be this rank's alone, by the type that was chosen for it."""
    chosen = [each for each in trace.of(Call) if each.name in known.FSDP1_STATE_TYPES]
    types = [each.argument(1, "state_dict_type") for each in chosen]
    local = any(isinstance(t, Symbol) and t.name.endswith("LOCAL_STATE_DICT") for t in types)
    return call.name == "state_dict" and local


def _runs_alone(program: Program, guard: Guard) -> bool:
    """Whether a branch may be the one of a run of one process: ``world_size == 1``."""
    key, one = guard.key, ("const", "int", 1)
    if not (isinstance(key, tuple) and len(key) == 3 and key[2] == one):
        return False
    counts_ranks = means_rank_count(program.words(guard))
    return counts_ranks and bool(key[0] == ("==" if guard.taken else ">"))
