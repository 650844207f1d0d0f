"""Calls that bypass the hooks of a unit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.layers import is_a, with_parameters, wrapped_classes
from fsdplint.engine.facts.sharding import (
    as_state,
    is_gathered,
    is_summoned,
    receiver,
    unit_of,
    wrapping_of,
)
from fsdplint.engine.interpreter.elements import composed
from fsdplint.engine.interpreter.events import Call, DirectForward, Shard, Sharding, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import ClassValue, Object
from fsdplint.engine.must.classes import any_overrides
from fsdplint.engine.must.references import mentions
from fsdplint.engine.must.values import always, is_module
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD302",
    summary="`.forward` of a sharded module is called directly, which bypasses its hooks",
    severity=Severity.ERROR,
    fix=Safety.SAFE,
    since="0.1.0",
    clause="forward",
)


@dataclass(frozen=True, slots=True)
class SkippedHooks:
    """A ``.forward`` of an FSDP2 unit, called without the unit's hooks."""

    forward: DirectForward
    shard: Sharding


def skipped_hooks(program: Program) -> Iterator[SkippedHooks]:
    """Yield forward calls that bypass the hooks of an FSDP2 unit."""
    for trace in program.traces:
        for event in trace.of(DirectForward):
            shard = unit_of(trace, event.module)
            if shard is None or not program.together(event.site, shard.site):
                continue
            if not _is_registered_by_a_method(program, shard):
                yield SkippedHooks(event, shard)


def _is_registered_by_a_method(program: Program, shard: Sharding) -> bool:
    """True if a method that nothing calls registers the forward, perhaps before the call."""
    return isinstance(shard, Shard) and any(
        "forward" in other.module.hooked_methods
        for trace in program.method_traces_with(shard.call)
        for other in trace.of(Shard)
        if other.call is shard.call
    )


@dataclass(frozen=True, slots=True)
class InnerCall:
    """A call of the module inside an FSDP1 wrapper, which holds sharded parameters itself.

    Attributes:
        part: a layer or a parameter among them.
    """

    call: Call
    shard: Shard
    part: Object


def inner_calls(program: Program) -> Iterator[InnerCall]:
    """Yield calls of what FSDP1 wraps while no hook has gathered its parameters."""
    for trace in program.traces:
        for call in trace.calls("forward"):
            if call.site in trace.inside and isinstance(call.receiver, Object):
                shard = _last_wrapping(trace, call.receiver, call.time)
                if shard is None or not program.together(call.site, shard.site):
                    continue
                part = _own_part(trace, shard)
                if part is not None and not _is_whole(program, trace, shard, call):
                    yield InnerCall(call, shard, part)


def _last_wrapping(trace: Trace, module: Object, time: int) -> Shard | None:
    """Return the call by which FSDP1 surely shards all of a module's own parameters."""
    found = wrapping_of(trace, module, time)
    if found is None or found.may_leave_out or len(found.positional) > 1:
        return None
    return found


def _own_part(trace: Trace, shard: Shard) -> Object | None:
    """Return a layer or parameter that is surely in the wrapper's unit, not in an inner one."""
    classes, module = wrapped_classes(shard), shard.module
    if classes is None or (isinstance(module.cls, ClassValue) and module.cls.opaque()):
        return None
    units = {s.module for s in trace.of(Shard) if s.module is not module}
    units |= {p for p in composed(module) if p is not module and any(is_a(p, c) for c in classes)}
    return next(with_parameters(module, units), None)


def _is_whole(program: Program, trace: Trace, shard: Shard, call: Call) -> bool:
    """True if the parameters may be gathered at a call."""
    module, frames = shard.module, call.site.frames()
    escapes = [e for e in trace.escapes if shard.time < e.time < call.time]
    if any(module in each.objects for each in escapes) or is_summoned(program, call.site):
        return True
    outer = (each for each in trace.calls("forward") if each.receiver is module)
    hooked = (each.site.frames() for each in outer if each.site not in trace.inside)
    return is_gathered(trace, shard, call.time - 1) or any(
        frames[: len(each)] == each for each in hooked
    )


_HOOKS = r"register_(?:module_)?(?:full_)?(?:forward|backward)\w*hook"


def reports(program: Program) -> Iterator[Report]:
    for fact in skipped_hooks(program):
        source = fact.forward.source
        text = program.text(source.path, source.node)
        module = receiver(program, source)
        state = as_state(program, fact.shard, source)
        yield Report(
            program.span(source),
            f"`{text}` bypasses the hooks that all-gather the parameters of {module} ({state}): "
            "the forward crashes, or leaves every unit gathered",
            "bypasses the FSDP hooks",
            _evidence(program, fact),
            partial(_fix, program, source),
        )
    for inner in inner_calls(program):
        site = inner.call.site
        wrapper = program.text(inner.shard.site.path, inner.shard.call.func)
        where = program.where(inner.shard.site, site)
        yield Report(
            program.span(site),
            f"`{program.text(site.path, site.node)}` bypasses its `{wrapper}` wrapper (created "
            f"{where}), which all-gathers its parameters: it crashes on local shards",
            "runs on local shards",
            (
                program.evidence(inner.shard.site, "sharded here"),
                *program.conditions(site, inner.shard.site),
            ),
            lambda: Declined("the wrapper's name is not analyzed; call the wrapper by hand"),
        )


def _evidence(program: Program, fact: SkippedHooks) -> tuple[Evidence, ...]:
    source, call = fact.forward.source, fact.forward.site
    apart = source.path != call.path or not call.node.start <= source.node.start < call.node.end
    return (
        program.evidence(fact.shard.site, "sharded here"),
        *([program.evidence(call, "called here")] if apart else []),
        *program.conditions(fact.shard.site),
    )


def _fix(program: Program, source: Site) -> Fix | Declined:
    if not isinstance(source.node, ir.Attribute):
        return Declined("`forward` is looked up by name; call the module by hand")
    code = Code.of(program.tree(source.path))
    safety = Safety.SAFE if _is_always_module(program, source) else Safety.UNSAFE
    return call_module(code, source.node, safety)


def _is_always_module(program: Program, source: Site) -> bool:
    """True if calling the receiver surely runs its ``forward``, whatever the receiver is."""
    assert isinstance(source.node, ir.Attribute)
    at = program.tree(source.path).statement(source.node)
    plain = partial(is_module, program)
    is_one = always(program, source.path, source.node.value, at, plain)
    # A hook that the program registers would run, too, even if nothing is sharded.
    hooked = mentions(program, _HOOKS, "register_")
    return is_one and not hooked and not any_overrides(program, "__call__")


@builder
def call_module(code: Code, forward: ir.Attribute, safety: Safety) -> Fix:
    """Drop ``.forward`` from a bound method, whether it is called or passed on."""
    inner = forward.value.func if isinstance(forward.value, ir.Call) else None
    if isinstance(inner, ir.Name) and inner.id == "super":
        raise NoFixError("`super()` is not a module that can be called; change the call by hand")
    parent = code.parent(forward)
    if isinstance(parent, (ir.Assign, ir.Delete)) and forward in parent.targets:
        raise NoFixError(
            f"`{code.short(forward)}` is assigned, not called; call the module by hand"
        )
    dot = code.text.rindex(".", forward.value.end, forward.end)
    between = code.text[forward.value.end : dot]
    kept = between if code.comments(forward.value.end, dot) else between.rstrip(" \t\f\r\n\\")
    edit = code.edit(forward.value.end + len(kept), forward.end, "")
    title = f"call `{code.short(forward.value)}` instead of its `forward`"
    return Fix(title, safety, (edit,))
