"""Calls that all ranks have to make together, and which ranks make them on a path."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.engine.facts.scripts import is_used_alone
from fsdplint.engine.interpreter.events import Call, Shard, Sharding, Trace
from fsdplint.engine.interpreter.frameworks import has_sharded, is_for_all
from fsdplint.engine.interpreter.site import EVERY_RANK, Site
from fsdplint.engine.interpreter.values import (
    Const,
    Object,
    Parameters,
    StateDict,
    Symbol,
    Value,
    class_names,
    contained,
    followed,
)
from fsdplint.engine.program import Program
from fsdplint.knowledge import collectives as known
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.launch import INIT
from fsdplint.knowledge.names import KEYWORD_ONLY


@dataclass(frozen=True, slots=True)
class Collective:
    """A call that ``ranks`` make, out of the ``participants`` that all have to.

    Attributes:
        shard: what makes it a collective; for one that is always, the first sharding call. It is a
            call of a framework's object where that shards.
    """

    call: Call
    shard: Sharding | Call
    participants: frozenset[int]
    ranks: frozenset[int]


def collectives(trace: Trace) -> Iterator[Collective]:
    """The calls of a path that are collectives once a model is sharded."""
    shards = trace.units()
    framework = [call for call in trace.of(Call) if has_sharded(call)]
    if not shards and not framework:
        return
    roles = _have_roles(shards)
    for call in trace.of(Call):
        before = [shard for shard in shards if shard.time < call.time]
        shard = _needs(trace, call, before) or _framework_needs(call, framework)
        participants = EVERY_RANK if shard is None else _sharded_by(shard)
        if shard is None and not roles and call.name in known.WORLD_CALLS and is_by_all(call):
            shard = (*shards, *framework)[0]
        if shard is None:
            continue
        yield Collective(call, shard, participants, call.site.ranks() & participants)


def may_be_alone(program: Program, site: Site) -> bool:
    """Whether the program may get here without the process group that it has under some test.

    It has none either where it does not shard: other scripts may use the same code without one.
    """
    if is_used_alone(program, site.path):
        return True
    traces = program.traces
    inits = [call.site for trace in traces for call in trace.calls(INIT)]
    found = [*inits, *(shard.site for trace in traces for shard in trace.of(Shard))]
    here = set(_tests_on_the_way(program, site, set()))
    others = {each.node for each in found}
    return any(set(_tests_on_the_way(program, each, others)) - here for each in found)


def _tests_on_the_way(program: Program, site: Site, others: set[ir.Node]) -> Iterator[str]:
    """Yield the texts of the tests that decide whether the code gets to ``site``.

    A test does not, if one of ``others`` is on its other arm.
    """
    for path, node in site.frames():
        tree = program.tree(path)
        function = tree.function(node)
        for each in (*tree.ancestors(node), *(function.body if function is not None else ())):
            if not isinstance(each, ir.If) or "__name__" in tree.slice(each.test):
                continue
            inside = each.start <= node.start < each.end
            taken = each.body if any(s.end > node.start for s in each.body) else each.orelse
            other = [n for s in (*each.body, *each.orelse) if s not in taken for n in ir.walk(s)]
            leaves = any(isinstance(n, ir.Return) for n in ir.walk(each)) and each.end <= node.start
            if leaves or (inside and others.isdisjoint(other)):
                yield tree.slice(each.test)


def _have_roles(shards: list[Sharding]) -> bool:
    """Whether some ranks shard and the others do something else: who talks to whom is not known.

    They do not where both arms of a test shard, each in the default group.
    """
    alone = [shard for shard in shards if _sharded_by(shard) != EVERY_RANK]
    together: frozenset[int] = frozenset().union(*map(_sharded_by, alone))
    return bool(alone) and (together != EVERY_RANK or any(map(_is_given_group, alone)))


def _is_given_group(shard: Sharding) -> bool:
    """Whether a sharding call may be given the ranks that take part."""
    if not isinstance(shard, Shard):
        return True
    given = not known.GROUP_KEYWORDS.isdisjoint(shard.keywords) or len(shard.positional) > 1
    return given or any(argument.star for argument in shard.call.args)


def _framework_needs(call: Call, sharding: list[Call]) -> Call | None:
    """The call that makes a framework shard, if all ranks have to make ``call`` on its object."""
    before = next((each for each in sharding if each.time <= call.time), None)
    return before if before is not None and is_for_all(call) else None


def _sharded_by(shard: Sharding | Call) -> frozenset[int]:
    """The ranks that shard; where only some ask whether a model is a unit, it is one on all."""
    return shard.site.ranks() if isinstance(shard, Shard) else EVERY_RANK


def is_by_all(call: Call) -> bool:
    """Whether a call of c10d or of a distributed checkpoint is one of all ranks."""
    group = known.WORLD_CALLS[call.name]
    given = call.argument(group.position, group.keyword)
    whole = given is None or (isinstance(given, Const) and given.value is None)
    whole = whole or (isinstance(given, Symbol) and given.name.endswith("group.WORLD"))
    keywords = call.arguments.keywords
    alone = [keywords[name] for name in known.ALONE_KEYWORDS & keywords.keys()]
    together = all(isinstance(value, Const) and not value.value for value in alone)
    return whole and together and not call.arguments.open


def _needs(trace: Trace, call: Call, shards: list[Sharding]) -> Sharding | None:
    """The sharding call that makes ``call`` a collective, if one does."""
    receiver = followed(call.receiver)
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


def _function_needs(call: Call, shards: list[Sharding]) -> Sharding | None:
    """The sharding call that makes a function a collective for the model it is given."""
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
    options = call.argument(KEYWORD_ONLY, "options")
    if not isinstance(options, Object):
        return False
    values = [options.keywords.get(name) for name in known.WHOLE_STATE_OPTIONS]
    return any(isinstance(value, Const) and value.value is True for value in values)


def _wraps_only(shard: Sharding, module: Object) -> bool:
    """Whether a call makes FSDP1's wrapper around ``module``, and no unit inside that is known."""
    outside = shard.module is module or shard.module in module.ancestors()
    return outside and shard.wraps_children is not True


def _unit(module: Value | None, shards: list[Sharding]) -> Sharding | None:
    """What sharded ``module`` or a part of it, so that to run it gathers."""
    if not isinstance(module, Object):
        return None
    return next((s for s in shards if _shards(s) and _within(s.module, module)), None)


def _holder(module: Object | None, shards: list[Sharding]) -> Sharding | None:
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


def _shards(shard: Sharding) -> bool:
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
