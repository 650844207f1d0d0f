"""Modules that share a parameter and are sharded in different units."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.layers import surely_in
from fsdplint.engine.facts.loops import is_known_one
from fsdplint.engine.facts.sharding import exclude_each_other
from fsdplint.engine.facts.weights import is_loaded, root
from fsdplint.engine.interpreter.events import Shard, Store, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import (
    Const,
    Object,
    Origin,
    Symbol,
    class_names,
    followed,
    must_be,
)
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.fixes.names import dotted
from fsdplint.fixes.shard_blocks import module_argument
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.modules import PARAMETER_LAYERS
from fsdplint.knowledge.tied_weights import (
    HEAD,
    OVERRIDES,
    REPLACES,
    SETTING,
    tied_embedding,
)
from fsdplint.knowledge.torch_range import TorchRange
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD209",
    summary="modules that share a parameter are sharded in different units",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
)


@dataclass(frozen=True, slots=True)
class Shared:
    """Two modules hold one parameter.

    Attributes:
        site: the code that ties them.
        time: the time at which it runs.
        name: the attribute of both modules that holds the parameter.
        owner: the module that gets the parameter of the other one, the ``source``.
    """

    site: Site
    time: int
    name: str
    owner: Object
    source: Object


@dataclass(frozen=True, slots=True)
class Tie:
    """Two modules share a parameter, and are in different units.

    Attributes:
        unit: the call that makes the smaller unit.
        inside: the module in that unit.
        outside: the other module.
        around: the call that makes the unit of ``outside``, as far as it is known.
        open: a loop may also shard ``outside``, or a part of the model around it.
    """

    shared: Shared
    unit: Shard
    inside: Object
    outside: Object
    around: Shard
    open: bool


def ties(program: Program) -> Iterator[Tie]:
    """Yield parameters that two modules share and that two FSDP2 units would manage."""
    for trace in program.traces:
        for shared in (*_assigned(trace), *_loaded(trace)) if trace.of(Shard) else ():
            found = _tie(trace, shared)
            if found is not None and _always(program, found):
                yield found


def _assigned(trace: Trace) -> Iterator[Shared]:
    """Yield parameters that the program assigns to a second module."""
    for store in trace.of(Store):
        owner, value = store.owner, followed(store.value)
        source = value.parent if isinstance(value, Object) else None
        if not isinstance(owner, Object) or source is None or source is owner:
            continue
        known = class_names(source.cls) | class_names(owner.cls)
        if _is_replaced(source):
            continue
        if value.step == f".{store.name}" and known & PARAMETER_LAYERS:  # type: ignore[union-attr]  # an Object, since it has a parent
            yield Shared(store.site, store.time, store.name, owner, source)


def _is_replaced(layer: Object) -> bool:
    """True if the program replaces a layer by another one, which gets its weights."""
    now = None if layer.parent is None else layer.parent.attrs.get(layer.step.removeprefix("."))
    return now is not None and followed(now) is not layer


def _loaded(trace: Trace) -> Iterator[Shared]:
    """Yield parameters that a published checkpoint ties, in models that nothing else changes."""
    for model in dict.fromkeys(root(shard.module) for shard in trace.of(Shard)):
        embedding = _tied_embedding(model)
        if embedding is None or model.site is None or _may_be_untied(trace, model):
            continue
        weights = _part(model, f"{HEAD}.weight"), _part(model, f"{embedding}.weight")
        owner, source = (weight and weight.parent for weight in weights)
        if owner is not None and source is not None:
            yield Shared(model.site, model.born, "weight", owner, source)


def _tied_embedding(model: Object) -> str | None:
    """Return the path of the embedding that a model's checkpoint ties, None if none is known."""
    if not is_loaded(model) or model.open or OVERRIDES & model.keywords.keys():
        return None
    if not isinstance(model.cls, Symbol):
        return None  # a class of the program may tie nothing
    keyword = model.keywords.get("pretrained_model_name_or_path")
    checkpoint = must_be(model.args[0] if model.args else keyword)
    if not isinstance(checkpoint, Const) or not isinstance(checkpoint.value, str):
        return None
    return tied_embedding(model.cls.name, checkpoint.value)


def _may_be_untied(trace: Trace, model: Object) -> bool:
    """True if unknown code gets the model, or a layer is replaced, before it is sharded.

    Resized layers are tied again only if the configuration still asks for it.
    """
    first = min(shard.time for shard in trace.of(Shard) if root(shard.module) is model)
    if model.escaped is not None and model.escaped < first:
        return True
    if _part(model, SETTING) is None:
        return True
    return any(time < first and name in REPLACES for time, name in trace.called)


def _part(model: Object, path: str) -> Object | None:
    """Return a part of a library's model, whether or not the program names it.

    None if the program has replaced it.
    """
    part = model
    for name in path.split("."):
        named = part.attrs.get(name)
        if named is None:
            named = Object(0, Origin.PART, parent=part, step=f".{name}")
        if not isinstance(named, Object) or named.origin is not Origin.PART:
            return None
        part = named
    return part


def _tie(trace: Trace, shared: Shared) -> Tie | None:
    owner, source = shared.owner, shared.source
    ours, theirs = _unit(trace, owner), _unit(trace, source)
    if ours is None or theirs is None or _same_unit(ours, theirs):
        return None
    if shared.time > min(ours.time, theirs.time):
        return None
    open_ones = _is_open(trace, owner, ours), _is_open(trace, source, theirs)
    alone = _is_alone(owner, ours), _is_alone(source, theirs)
    if any(open_ones) and not any(alone):
        return None
    if alone[0] is alone[1]:
        around = theirs.module in owner.ancestors()
        ours_is_smaller = around or (
            ours.time > theirs.time and ours.module not in source.ancestors()
        )
    else:
        ours_is_smaller = alone[0]
    if ours_is_smaller:
        return Tie(shared, ours, owner, source, theirs, open_ones[1])
    return Tie(shared, theirs, source, owner, ours, open_ones[0])


def _unit(trace: Trace, module: Object) -> Shard | None:
    """Return the nearest call that shards ``module`` or a module around it, if it is FSDP2's."""
    shards = trace.of(Shard)
    chain = (module, *module.ancestors())
    unit = next((s for each in chain for s in shards if s.module is each), None)
    return unit if unit is not None and unit.generation is Generation.FSDP2 else None


def _is_open(trace: Trace, module: Object, unit: Shard) -> bool:
    """True if a call on unknown parts may put ``module`` into a nearer unit."""
    chain = (module, *module.ancestors())
    vague = (s.module for s in trace.of(Shard) if surely_in(s.module) is not s.module)
    return unit.module is not module and any(surely_in(each) in chain for each in vague)


def _is_alone(module: Object, unit: Shard) -> bool:
    """True if a call shards exactly this module, so that its unit holds no other one."""
    return unit.module is module and not unit.listed


def _same_unit(one: Shard, other: Shard) -> bool:
    together = one.listed and one.call is other.call
    return together or one.module is other.module


def _always(program: Program, tie: Tie) -> bool:
    """True if the modules share the parameter whenever they are sharded in different units."""
    if not (is_known_one(program, tie.unit) and is_known_one(program, tie.around)):
        return False
    sites = (tie.unit.site, tie.around.site)
    guards = {(g.key, g.taken) for g in tie.shared.site.guards}
    if any(guards - {(g.key, g.taken) for g in site.guards} for site in sites):
        return False
    return not exclude_each_other(*sites) and program.together(*sites)


_TOGETHER = "pass both to one `fully_shard` call by hand"
# The release that checks for shared parameters in the first forward.
_CHECKS = (2, 12, 0)


def reports(program: Program) -> Iterator[Report]:
    harm = _harm(program.torch)
    for fact in ties(program):
        site, shared = fact.unit.site, fact.shared
        inside, outside = (each.path().strip(".") for each in (fact.inside, fact.outside))
        yield Report(
            program.span(site),
            f"`{inside}` and `{outside}` share their `{shared.name}`, but "
            f"`{program.text(site.path, fact.unit.call)}` puts `{inside}` into a separate unit: "
            f"{harm}",
            f"`{outside}` is not in this unit",
            (
                program.evidence(shared.site, f"`{shared.name}` is shared from here on"),
                program.evidence(fact.around.site, f"shards `{outside}`"),
                *program.conditions(site),
            ),
            partial(_fix, program, fact),
        )


def _harm(torch: TorchRange) -> str:
    if torch.is_from(_CHECKS):
        return "the first forward crashes"
    if torch.overlaps(lower=_CHECKS):
        return "the first forward crashes, or before torch 2.12 the tie is lost"
    return "the tie is lost"


def _fix(program: Program, fact: Tie) -> Fix | Declined:
    if fact.unit.site.path != fact.around.site.path:
        return Declined(f"the two modules are sharded in different files; {_TOGETHER}")
    outside = fact.outside.path().strip(".")
    if fact.open:
        return Declined(f"a loop may also shard `{outside}`; {_TOGETHER}")
    code = Code.of(program.tree(fact.unit.site.path))
    if fact.around.module is not fact.outside:
        if fact.around.time < fact.unit.time:
            return Declined(f"`{outside}` is sharded before this call; {_TOGETHER}")
        return one_unit(code, fact.unit.call, fact.inside.path(), fact.outside.path(), None)
    return one_unit(code, fact.unit.call, fact.inside.path(), fact.outside.path(), fact.around.call)


@builder
def one_unit(code: Code, call: ir.Call, inside: str, outside: str, other: ir.Call | None) -> Fix:
    """Pass both modules to ``call`` as a list.

    Args:
        inside: the path below the model of the module that it shards.
        outside: the path of the other module.
        other: the call that shards the other module; the fix removes it.
    """
    argument = module_argument(call)
    name = None if argument is None else dotted(argument.value)
    if argument is None or name is None or not name.endswith(inside):
        raise NoFixError(f"`{code.short(call)}` does not name the module by its path; {_TOGETHER}")
    second = name.removesuffix(inside) + outside
    if not all(part.isidentifier() for part in second.split(".")):
        raise NoFixError(f"`{second}` is not a plain attribute path; {_TOGETHER}")
    edits = [code.edit(argument.value.start, argument.value.end, f"[{name}, {second}]")]
    if other is not None:
        statement = code.statement(other)
        alone = isinstance(statement, ir.Expression) and statement.value is other
        block = code.block(code.statement(call))
        given = [code.slice(a.value) for a in other.args[1:]]
        if not alone or statement not in block.statements:
            raise NoFixError(f"`{code.short(other)}` cannot be removed; {_TOGETHER}")
        if given != [code.slice(a.value) for a in call.args[1:]]:
            raise NoFixError(f"the two modules are sharded with different arguments; {_TOGETHER}")
        edits.append(code.delete_lines(*code.extent(statement)))
    return Fix(f"shard `{name}` and `{second}` as one unit", Safety.UNSAFE, tuple(edits))
