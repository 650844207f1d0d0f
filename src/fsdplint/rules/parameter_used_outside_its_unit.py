"""Parameters that are computed with where no hook of their unit has gathered them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.gradient_modes import NO_GRADIENTS, gradient_mode
from fsdplint.engine.facts.layers import library_class
from fsdplint.engine.facts.origins import attributes_behind
from fsdplint.engine.facts.sharding import is_summoned, runs_alone
from fsdplint.engine.interpreter.events import Call, DirectForward, MethodCall, Shard, Store, Trace
from fsdplint.engine.interpreter.modules import is_parameter
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import (
    Choice,
    Condition,
    Const,
    Object,
    Symbol,
    may_be,
    must_be,
)
from fsdplint.engine.program import Program
from fsdplint.files.suites import code_only
from fsdplint.finding import Evidence, Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.fixes.names import dotted
from fsdplint.fixes.shard_blocks import module_argument, without_sharding
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.collectives import PARALLELIZE_MODULE
from fsdplint.knowledge.modules import LINEAR, LINEAR_LAYER, PARAMETER_LAYERS, TAKES_WEIGHTS
from fsdplint.knowledge.tensors import MAKES_DTENSORS
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD319",
    summary="a parameter is used outside the forward of the unit that gathers it",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="its precision on public code has not been measured.",
)

# The release from which on a root's forward reshards a unit of several modules of which some did
# not run; before, their parameters stay gathered.
_COMPLETES = (2, 13, 0)
# Attributes and methods whose result is a view of the same parameter.
_VIEWS = (".T", ".mT", ".data", ".t()", ".transpose()")


@dataclass(frozen=True, slots=True)
class StrayUse:
    """A computation with ``weight`` while its unit holds shards.

    Attributes:
        argument: the expression that names the parameter.
        inside: the forward of a unit around this one is running.
        alone: the sharding call makes this one unit and no other.
    """

    use: Call
    argument: ir.Expr
    weight: Object
    shard: Shard
    inside: bool
    alone: bool


def stray_uses(program: Program) -> Iterator[StrayUse]:
    """Computations with parameters and plain tensors, where the parameters are surely shards."""
    mentions = _mentions_dtensors(program)
    for trace in program.traces:
        shards = trace.of(Shard)
        if not shards or runs_alone(trace) or trace.calls("set_reshard_after_forward"):
            continue
        if mentions and _makes_dtensors(trace):
            continue
        parallel = trace.calls(PARALLELIZE_MODULE)
        for use in trace.calls(*TAKES_WEIGHTS):
            fact = _stray(program, trace, shards, use)
            if fact is None or (mentions and _is_handed_over(trace, fact)):
                continue
            if all(_is_left_out(trace, call.site, fact) for call in parallel):
                yield fact


def _mentions_dtensors(program: Program) -> bool:
    texts = [code_only(tree.text) for tree in program.trees_with(*MAKES_DTENSORS)]
    return any(word in text for text in texts for word in MAKES_DTENSORS)


def _makes_dtensors(trace: Trace) -> bool:
    """Whether a path makes DTensors itself, be it where `parallelize_module` is left out."""
    called = (name for _, name in trace.called if name != PARALLELIZE_MODULE)
    return any(not set(name.split(".")).isdisjoint(MAKES_DTENSORS) for name in called)


def _is_left_out(trace: Trace, site: Site, fact: StrayUse) -> bool:
    """Whether a run that comes to a use surely can leave a place out.

    Then it is in an arm of a branch that the path has not decided on: `if tp > 1:`.
    """
    held = {(guard.key, guard.taken) for guard in (*fact.use.site.guards, *fact.shard.site.guards)}
    held |= set(trace.decisions)
    own = (guard for guard in site.guards if not guard.progress)
    return any((guard.key, guard.taken) not in held for guard in own)


def _is_handed_over(trace: Trace, fact: StrayUse) -> bool:
    """Whether unknown code may have made DTensors of the model's parameters."""
    unit = fact.shard.module
    whole = (unit, *unit.ancestors())
    return any(not escape.objects.isdisjoint(whole) for escape in trace.escapes)


def _stray(program: Program, trace: Trace, shards: list[Shard], use: Call) -> StrayUse | None:
    operands = list(_operands(use))
    found = [(node, weight) for node, value in operands if (weight := _weight(value)) is not None]
    if not found or not _has_plain_tensor(program, use, operands):
        return None
    argument, weight = found[0]
    shard = _unit(weight, [s for s in shards if s.time < use.time])
    if shard is None or not program.together(use.site, shard.site):
        return None
    if not _is_whole_unit(shard) or _is_tied(trace, weight) or is_summoned(program, use.site):
        return None
    nested = [s for s in shards if s.time < use.time and s.module in shard.module.ancestors()]
    if not _holds_shards(program, trace, shard, use, nested=bool(nested)):
        return None
    inside = any(_runs(trace, above.module, use) for above in nested)
    if shard.listed and (inside or not nested or not program.torch.overlaps(lower=_COMPLETES)):
        return None
    alone = all(s.module is shard.module for s in shards if s.call is shard.call)
    return StrayUse(use, argument, weight, shard, inside, alone)


# What is used


def _operands(use: Call) -> Iterator[tuple[ir.Expr, object]]:
    """The operands of a call or of ``@``, with their values."""
    node = use.site.node
    if isinstance(node, ir.BinOp):
        yield from zip((node.left, node.right), use.arguments.args, strict=True)
    elif isinstance(node, ir.Call) and not any(argument.star for argument in node.args):
        plain = [each.value for each in node.args if each.keyword is None]
        yield from zip(plain, use.arguments.args, strict=False)
        for each in node.args:
            if each.keyword in use.arguments.keywords:
                yield each.value, use.arguments.keywords[each.keyword]


def _weight(value: object) -> Object | None:
    """The parameter that a value surely is, or is a view of."""
    item = must_be(value)  # type: ignore[arg-type]  # a value
    while isinstance(item, Object) and item.step in _VIEWS:
        item = item.parent
    if isinstance(item, Object) and is_parameter(item) and item.parent is not None:
        return item
    return None


# Attributes that an expression gets a module's tensors by.
_TENSORS = frozenset(
    {"weight", "bias", "grad", "parameters", "named_parameters", "state_dict", "full_tensor"}
)


def _has_plain_tensor(program: Program, use: Call, operands: list[tuple[ir.Expr, object]]) -> bool:
    """Whether some operand is made from no tensor of a module: two DTensors go together."""
    known = [(node, must_be(value)) for node, value in operands]  # type: ignore[arg-type]  # values
    others = [n for n, v in known if isinstance(v, Object) and not v.step.startswith(".")]
    return any(_TENSORS.isdisjoint(attributes_behind(program, use.site, n)) for n in others)


# Whether its unit holds shards


def _unit(weight: Object, shards: list[Shard]) -> Shard | None:
    """The call that made a unit of the nearest module around a parameter."""
    layer = weight.parent
    assert layer is not None
    for module in (layer, *layer.ancestors()):
        own = [shard for shard in shards if shard.module is module]
        if own:
            known = module is layer or library_class(layer) in PARAMETER_LAYERS
            return own[-1] if known else None
    return None


def _is_whole_unit(shard: Shard) -> bool:
    """Whether a call surely shards all parameters of the modules that it is given."""
    if shard.may_leave_out:
        return False
    if shard.generation is Generation.FSDP2:
        return True
    strategy = shard.strategy
    full = strategy is None or (
        isinstance(strategy, Symbol) and strategy.name.endswith(".FULL_SHARD")
    )
    return shard.cuts_flat and full


def _is_tied(trace: Trace, weight: Object) -> bool:
    return any(store.value is weight for store in trace.of(Store))


def _holds_shards(program: Program, trace: Trace, shard: Shard, use: Call, *, nested: bool) -> bool:
    """Whether a unit is surely resharded, or was never gathered, when the parameter is used."""
    unit = shard.module
    own = (unit, *unit.ancestors())
    if any(call.time < use.time for call in trace.calls("unshard")):
        return False
    # FSDP1's forward prefetching gathers a unit before its turn.
    if any("forward_prefetch" in each.keywords for each in trace.of(Shard)):
        return False
    if any(shard.time < e.time < use.time and unit in e.objects for e in trace.escapes):
        return False
    around = own if not nested else (unit,)
    if any(_runs(trace, module, use) for module in around) or _unfollowed(program, trace, use):
        return False
    if nested:
        return _reshards(shard)
    # A root stays gathered from its forward to its backward, which may be another model's.
    return not any(c.receiver in own for c in trace.calls("forward") if c.time < use.time)


def _reshards(shard: Shard) -> bool:
    """Whether an inner unit is resharded behind its forward, be it by an option."""
    given = shard.keywords.get("reshard_after_forward", Const(None))
    if isinstance(given, Condition):
        return True  # an option may come out either way
    options = may_be(given) if isinstance(given, Choice) else (must_be(given),)
    constants = [each.value for each in options if isinstance(each, Const)]
    return len(constants) == len(options) and any(v is None or v is True for v in constants)


def _runs(trace: Trace, module: Object, use: Call) -> bool:
    """Whether a forward or another method of a module is running."""
    around = use.site.frames()
    entered = [c.site for c in trace.calls("forward") if c.receiver is module]
    entered += [d.site for d in trace.of(DirectForward) if d.module is module]
    entered += [m.site for m in trace.of(MethodCall) if m.module is module]
    frames = [site.frames() for site in entered]
    return any(len(each) < len(around) and around[: len(each)] == each for each in frames)


def _unfollowed(program: Program, trace: Trace, use: Call) -> bool:
    """Whether the use is in a forward that nothing is seen to call."""
    called = [call.site.frames() for call in trace.calls("forward")]
    frames = use.site.frames()
    for index, (path, node) in enumerate(frames):
        function = program.tree(path).function(node)
        if not isinstance(function, ir.Function) or function.name != "forward":
            continue
        static = any(ir.last_name(each) == "staticmethod" for each in function.decorators)
        if not static and frames[:index] not in called:
            return True
    return False


def reports(program: Program) -> Iterator[Report]:
    for fact in stray_uses(program):
        site, shard = fact.use.site, fact.shard
        name = _name(fact.argument, fact.weight) or fact.weight.path().lstrip(".")
        state = (
            "a DTensor shard there, and mixing it with plain tensors raises"
            if shard.generation is Generation.FSDP2
            else "only this rank's flat shard there, and the computation raises"
        )
        sharder = program.text(shard.site.path, shard.call.func)
        yield Report(
            program.span(site),
            f"`{program.text(site.path, site.node)}` uses `{name}` outside the forward of its "
            f"unit (`{sharder}` {program.where(shard.site, site)}): it is {state}",
            "raises",
            (
                program.evidence(shard.site, "only this unit's forward gathers it"),
                *_handing_over(program, fact),
                *program.conditions(site, shard.site),
            ),
            partial(_fix, program, fact),
        )


def _handing_over(program: Program, fact: StrayUse) -> Iterator[Evidence]:
    """The argument of an outer call that names the parameter, where the use does not."""
    if _name(fact.argument, fact.weight) is not None:
        return
    for path, call in reversed(fact.use.site.calls):
        for given in call.args if isinstance(call, ir.Call) else ():
            named = dotted(given.value)
            if named is not None and f".{named}".endswith(fact.weight.path()):
                yield program.evidence(Site(path, given.value), "passed on here")
                return


def _name(argument: ir.Expr, weight: Object) -> str | None:
    """``model.head.weight`` of that expression or of a view of it."""
    while True:
        if isinstance(argument, ir.Call):
            argument = argument.func
        path = dotted(argument)
        if path is not None and path.endswith(weight.step):
            return path
        if not isinstance(argument, ir.Attribute):
            return None
        argument = argument.value


# The fix


def _fix(program: Program, fact: StrayUse) -> Fix | Declined:
    site, shard = fact.use.site, fact.shard
    code = Code.of(program.tree(site.path))
    if fact.inside:
        called = _as_call(code, fact)
        if called is not None:
            return call_layer(code, site.node, *called)
        if not fact.alone:
            return Declined("the sharding call also creates other units")
        return join_outer_unit(Code.of(program.tree(shard.site.path)), shard.call)
    if shard.generation is Generation.FSDP1:
        return Declined(
            "FSDP1 gathers the parameter only in the unit's forward; use "
            "it there, or inside `summon_full_params`"
        )
    if any(program.is_rank_test(guard) for guard in site.guards):
        return Declined(
            "only some ranks get here, and `full_tensor` needs all ranks; call it before the test"
        )
    if gradient_mode(program, site) not in NO_GRADIENTS:
        return Declined(
            "`full_tensor()` does not average gradients over ranks; use it in the unit's forward"
        )
    if program.sometimes_without(site, shard.site):
        return Declined("the model is not always sharded, and a plain tensor has no `full_tensor`")
    return gather(code, fact.argument, fact.weight)


def _as_call(code: Code, fact: StrayUse) -> tuple[str, ir.Expr] | None:
    """The layer and its input, if the computation is exactly what calling the layer does."""
    layer, node = fact.weight.parent, fact.use.site.node
    name = _name(fact.argument, fact.weight)
    if layer is None or library_class(layer) != LINEAR_LAYER or name is None:
        return None
    if not name.endswith(".weight"):
        return None
    path = name.removesuffix(".weight")
    bias = must_be(layer.keywords.get("bias"))
    without = isinstance(bias, Const) and bias.value is False
    if isinstance(node, ir.BinOp):
        turned = code.slice(node.right) in (f"{name}.T", f"{name}.t()", f"{name}.mT")
        return (path, node.left) if turned and without else None
    if not isinstance(node, ir.Call) or fact.use.name != LINEAR:
        return None
    if any(argument.keyword is not None for argument in node.args):
        return None
    given = [code.slice(argument.value) for argument in node.args]
    same = given[1:] == ([name] if without else [name, f"{path}.bias"])
    return (path, node.args[0].value) if same else None


@builder
def call_layer(code: Code, node: ir.Node, layer: str, given: ir.Expr) -> Fix:
    """``F.linear(x, head.weight)`` to ``head(x)``, whose hooks gather the weight."""
    edit = code.edit(node.start, node.end, f"{layer}({code.slice(given)})")
    return Fix(f"call `{layer}`, whose hooks gather the weight", Safety.UNSAFE, (edit,))


@builder
def join_outer_unit(code: Code, shard: ir.Call) -> Fix:
    """Take the sharding call away, so that the parameter is in the unit around."""
    module = module_argument(shard)
    if module is None:
        raise NoFixError(f"`{code.short(shard)}` does not show which argument is the module")
    title = (
        f"do not shard `{code.slice(module.value)}` apart from the "
        "unit whose forward uses its parameter"
    )
    return Fix(title, Safety.UNSAFE, (without_sharding(code, shard, module.value),))


@builder
def gather(code: Code, argument: ir.Expr, weight: Object) -> Fix:
    """Insert ``.full_tensor()`` behind the parameter."""
    name = _name(argument, weight)
    if name is None or not code.slice(argument).startswith(name):
        raise NoFixError(f"`{code.short(argument)}` does not name the parameter")
    at = argument.start + len(name)
    edit = code.edit(at, at, ".full_tensor()")
    return Fix("gather the parameter with `full_tensor()`", Safety.UNSAFE, (edit,))
