"""Methods of a sharded module, other than forward, that bypass its hooks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain

from fsdplint.engine import ir
from fsdplint.engine.facts.layers import library_class, surely_in, with_parameters
from fsdplint.engine.facts.sharding import is_gathered, receiver
from fsdplint.engine.frontend.tree import COMPOUND
from fsdplint.engine.interpreter.events import Call, MethodCall, Shard, Trace
from fsdplint.engine.interpreter.modules import is_module, is_parameter
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import (
    ClassValue,
    Const,
    FunctionValue,
    Object,
    contained,
)
from fsdplint.engine.must.classes import method
from fsdplint.engine.must.values import Instance, Known, always
from fsdplint.engine.program import Program
from fsdplint.finding import Edit, Evidence, Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.fixes.imports import Imports, qualified
from fsdplint.fixes.names import dotted
from fsdplint.fixes.shard_blocks import module_argument
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.modules import (
    PARAMETER,
    PARAMETER_LAYERS,
    TAKES_WEIGHTS,
    has_no_parameters,
)
from fsdplint.knowledge.names import COMPOSABLE_FSDP, FULLY_SHARD, REGISTER_FORWARD, canonical
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD306",
    summary="a method of a sharded module bypasses the hooks that all-gather its parameters",
    severity=Severity.ERROR,
    fix=Safety.SAFE,
    since="0.1.0",
    clause="forward",
)


@dataclass(frozen=True, slots=True)
class BypassingMethod:
    """A method of a unit, called without the unit's hooks.

    Attributes:
        use: where it uses parameters of the unit.
        part: the layer or parameter that is used there.
        everywhere: true if all modules that ``shard`` is called on have the method.
        nested: true if ``forward`` calls the method, too, in a unit that reshards afterwards.
    """

    method: MethodCall
    shard: Shard
    use: Site
    part: Object
    everywhere: bool
    nested: bool


def bypassing_methods(program: Program, *, sure: bool = True) -> Iterator[BypassingMethod]:
    """Yield calls of a unit's methods that use its own parameters and bypass its hooks.

    Args:
        sure: leave out modules that may have no parameters, and units that are gathered, or may be
            by other code.
    """
    for trace in program.traces:
        for called in trace.of(MethodCall):
            inner = called.hooked or _in_another(trace, called)
            shard = None if inner else _sharding(trace, called)
            if shard is None or not program.together(called.site, shard.site):
                continue
            if sure and is_gathered(trace, shard, called.time):
                continue
            if sure and _known_elsewhere(trace, shard, called):
                continue
            uses = _uses(trace, called, sure=sure)
            for use, part in uses if sure else chain(uses, _methods_of_parts(called)):
                everywhere = _every_has_method(program, shard, called.name)
                nested = _may_reshard(program, shard) and _runs_hooked(called.module, called.name)
                yield BypassingMethod(called, shard, use, part, everywhere, nested)
                break


def _in_another(trace: Trace, method: MethodCall) -> bool:
    """True if another method of the same module leads here; that one has to be registered."""
    around = method.site.calls
    frames = [m.site.frames() for m in trace.of(MethodCall) if m.module is method.module]
    return any(around[: len(each)] == each for each in frames)


def _sharding(trace: Trace, method: MethodCall) -> Shard | None:
    """Return the call that made the module a unit of all parameters outside inner units."""
    own = [s for s in trace.of(Shard) if s.module is method.module and s.time < method.time]
    if not own or (own[-1].generation is Generation.FSDP1 and own[-1].wraps_children is not False):
        return None
    return own[-1]


def _known_elsewhere(trace: Trace, shard: Shard, method: MethodCall) -> bool:
    """True if unknown code may have registered the method or gathered the parameters."""
    cls = method.module.cls
    if isinstance(cls, ClassValue) and cls.opaque():
        return True
    return any(
        shard.time < escape.time < method.time and method.module in escape.objects
        for escape in trace.escapes
    )


# What it uses


def _uses(trace: Trace, method: MethodCall, *, sure: bool) -> Iterator[tuple[Site, Object]]:
    """Yield where the method uses parameters that its unit holds itself."""
    inside = method.site.frames()
    hooked = [
        call.site.frames() for call in trace.calls("forward") if call.receiver is method.module
    ]
    shards = [s for s in trace.of(Shard) if s.time < method.time and s.module is not method.module]
    units = {surely_in(s.module) for s in shards}
    for call in trace.calls("forward", "unshard", *TAKES_WEIGHTS):
        frames = call.site.frames()
        if call.time < method.time or frames[: len(inside)] != inside:
            continue
        if call.name == "unshard":
            return
        if not any(frames[: len(each)] == each for each in hooked):
            part = next(_held(call, method.module, units, sure=sure), None)
            if part is not None:
                yield call.site, part


def _methods_of_parts(method: MethodCall) -> Iterator[tuple[Site, Object]]:
    """Yield the parts whose own methods a method calls, which may use their parameters."""
    found = _method(method.module, method.name)
    for node in ir.walk(found.function) if found is not None else ():
        names = (dotted(node.func) or "").split(".") if isinstance(node, ir.Call) else []
        part = method.module.attrs.get(names[1]) if names[:1] == ["self"] and names[2:] else None
        if isinstance(part, Object) and is_module(part) and _method(part, names[2]) is not None:
            yield method.site, part


def _method(module: Object, name: str) -> FunctionValue | None:
    found = module.cls.lookup(name) if isinstance(module.cls, ClassValue) else None
    return found if isinstance(found, FunctionValue) else None


def _held(call: Call, unit: Object, units: set[Object], *, sure: bool) -> Iterator[Object]:
    """Yield what belongs to ``unit`` itself, of a call's module or of the weights it gets."""
    if isinstance(call.receiver, Object):
        module = call.receiver
        if _within(module, unit, units):
            yield from with_parameters(module, units)
            if not sure and not has_no_parameters(library_class(module)):
                yield module
        return
    for value in call.arguments.values():
        for item in contained(value):
            if isinstance(item, Object) and _is_weight(item) and _within(item, unit, units):
                yield item


def _is_weight(item: Object) -> bool:
    if library_class(item) == PARAMETER:
        return True
    layer = item.parent if is_parameter(item) else None
    return layer is not None and library_class(layer) in PARAMETER_LAYERS


def _within(item: Object, unit: Object, units: set[Object]) -> bool:
    """True if ``unit`` is the innermost unit around ``item``, including itself."""
    for module in (item, *item.ancestors()):
        if module is unit:
            return item is not unit
        if module in units:
            return False
    return False


# Where it can be registered


def _every_has_method(program: Program, shard: Shard, name: str) -> bool:
    """True if every module that the sharding call shards surely has the method."""
    modules = [
        each.module
        for trace in program.traces
        for each in trace.of(Shard)
        if each.call is shard.call
    ]
    return all(isinstance(m.cls, ClassValue) and m.cls.lookup(name) is not None for m in modules)


def _may_reshard(program: Program, shard: Shard) -> bool:
    """True if a unit of the sharding call may reshard its parameters after a forward."""
    for trace in program.traces:
        shards = trace.of(Shard)
        for each in shards:
            if each.call is not shard.call:
                continue
            given = each.keywords.get("reshard_after_forward", Const(None))
            above = [*each.module.ancestors()]
            inner = any(other.module in above for other in shards)
            if inner or not isinstance(given, Const) or given.value not in (None, False):
                return True
    return False


def _runs_hooked(module: Object, name: str) -> bool:
    """True if ``forward``, or a registered method, leads to the method of a name."""
    queue = ["forward", *sorted(module.hooked_methods - {name})]
    cls = module.cls
    for each in queue:
        method = cls.lookup(each) if isinstance(cls, ClassValue) else None
        for node in ir.walk(method.function) if isinstance(method, FunctionValue) else ():
            own = isinstance(node, ir.Attribute) and isinstance(node.value, ir.Name)
            if own and node.attr not in queue:  # type: ignore[attr-defined]  # an attribute
                queue.append(node.attr)  # type: ignore[attr-defined]  # an attribute
    return name in queue


def reports(program: Program) -> Iterator[Report]:
    for fact in bypassing_methods(program):
        source = fact.method.source
        text = program.text(source.path, source.node)
        module = receiver(program, source)
        where = program.where(fact.shard.site, source)
        yield Report(
            program.span(source),
            f"`{text}` bypasses the hooks that all-gather the parameters of {module} (sharded "
            f"{where}): it crashes on the local shards",
            "runs on local shards",
            _evidence(program, fact),
            partial(mended, program, fact),
        )


def _evidence(program: Program, fact: BypassingMethod) -> tuple[Evidence, ...]:
    return (
        program.evidence(fact.use, "uses the unit's own parameters here"),
        program.evidence(fact.shard.site, "sharded here"),
        *program.conditions(fact.shard.site),
    )


def mended(program: Program, fact: BypassingMethod) -> Fix | Declined:
    """Return the fix that registers the method with the unit."""
    shard, name = fact.shard, fact.method.name
    if shard.generation is Generation.FSDP1:
        return Declined(
            "FSDP1 gathers only in the wrapper's `forward`; call the method from `forward` by hand"
        )
    if not fact.everywhere:
        call = program.text(shard.site.path, shard.call)
        return Declined(
            f"`{call}` also shards modules that have no `{name}`; register the method by hand"
        )
    if fact.nested:
        return Declined(
            f"`forward` calls `{name}`, whose hooks would reshard before `forward` ends; call it "
            "through `forward` by hand"
        )
    code = Code.of(program.tree(shard.site.path))
    return register_method(code, shard.call, name, _safety(program, fact))


def _safety(program: Program, fact: BypassingMethod) -> Safety:
    """Safe if every module that is sharded there has the method; otherwise registering raises."""
    shard = fact.shard
    given = module_argument(shard.call)
    if given is None:
        return Safety.UNSAFE
    at = program.tree(shard.site.path).statement(shard.call)
    has = partial(_has_method, program, fact.method.name)
    sure = always(program, shard.site.path, given.value, at, has)
    return Safety.SAFE if sure else Safety.UNSAFE


def _has_method(program: Program, name: str, value: Known) -> bool:
    found = method(program, value.cls, name) if isinstance(value, Instance) else None
    node = None if found is None else found.unit.node(found)
    if not isinstance(node, ir.FunctionDef):
        return False
    return not node.function.decorators and not node.function.is_generator


_BY_HAND = "call `register_fsdp_forward_method` by hand"
_SOMETIMES = (ir.Lambda, ir.Comprehension, ir.Conditional, ir.BoolOp)


@builder
def register_method(code: Code, shard: ir.Call, method: str, safety: Safety) -> Fix:
    """Register ``method`` below the call ``fully_shard(model, …)`` that makes it a unit."""
    statement = code.statement(shard)
    if isinstance(statement, COMPOUND) or any(
        isinstance(around, _SOMETIMES) and around.start >= statement.start
        for around in code.ancestors(shard)
    ):
        raise NoFixError(f"`{code.short(shard)}` is part of a larger expression; {_BY_HAND}")
    if not code.alone(statement):
        raise NoFixError(
            f"`{code.short(statement)}` shares its line with other code; put it on its own line"
        )
    model = _model(code, statement, shard)
    imports = Imports(code, shard)
    register = imports.name(_package(code, shard), REGISTER_FORWARD.rpartition(".")[2])
    lines = [f'{register}({model}, "{method}")']
    edits: list[Edit] = imports.edits()
    if isinstance(statement, ir.Return):
        edits.append(code.edit(statement.start, shard.start, ""))
        lines.append(f"return {model}")
    indent = code.indentation(statement)
    text = "".join(f"{indent}{line}{code.newline}" for line in lines)
    edits.append(code.insert_lines(code.after(statement), text))
    return Fix(f"register `{method}` as a forward method of `{model}`", safety, tuple(edits))


def _package(code: Code, shard: ir.Call) -> str:
    """Return the package of the program's FSDP2, which is private up to torch 2.5."""
    name = qualified(code, shard.func) or ""
    known = canonical(name) == FULLY_SHARD and "._composable.fsdp." in name
    package = COMPOSABLE_FSDP if known else ""
    return package or REGISTER_FORWARD.rpartition(".")[0]


def _model(code: Code, statement: ir.Stmt, shard: ir.Call) -> str:
    """Return the unit's name below the statement that makes it."""
    argument = module_argument(shard)
    if isinstance(statement, ir.Return) and statement.value is not shard:
        raise NoFixError(f"`{code.short(shard)}` is part of a larger expression; {_BY_HAND}")
    if isinstance(statement, ir.Assign) and statement.value is shard:
        named = [path for path in map(dotted, statement.targets) if path is not None]
        if named:
            return named[0]
    path = None if argument is None else dotted(argument.value)
    if path is None:
        raise NoFixError(f"the module has no name below `{code.short(shard)}`; {_BY_HAND}")
    return path
