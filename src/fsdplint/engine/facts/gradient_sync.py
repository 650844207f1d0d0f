"""Calls that control when gradients are reduced."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.engine.facts.loops import loops_around, share_loop
from fsdplint.engine.facts.sharding import is_two_dimensional, unit_of
from fsdplint.engine.interpreter.events import Call, NoSync, Sharding, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import Const, FunctionValue, Object, Value, followed
from fsdplint.engine.program import Program
from fsdplint.knowledge.calls import BACKWARDS

SWITCHES = ("set_requires_gradient_sync", "set_requires_all_reduce")
# Calls that may come before a step without computing gradients.
_BEFORE_A_STEP = frozenset(
    {
        "clip_grad_norm_",
        "clip_grad_value_",
        "full_tensor",
        "get_total_norm",
        "item",
        "nullcontext",
        "parameters",
        "print",
        "step",
        "unscale_",
        *SWITCHES,
    }
)


@dataclass(frozen=True, slots=True)
class MissingNoSync:
    """A call of ``no_sync()`` on an FSDP2 unit, which has no such method."""

    call: NoSync
    shard: Sharding


def missing_no_syncs(program: Program) -> Iterator[MissingNoSync]:
    """Yield calls of FSDP1's ``no_sync`` on an FSDP2 unit."""
    for trace in program.traces:
        for event in trace.of(NoSync):
            shard = unit_of(trace, event.module)
            if shard is not None and program.together(event.site, shard.site):
                yield MissingNoSync(event, shard)


@dataclass(frozen=True, slots=True)
class UnreducedStep:
    """A step of an optimizer whose gradients were never reduced over the ranks.

    Attributes:
        off: the call that turned their reduction off.
        backward: a backward pass that ran without it.
        late: the call that turns it on again after the last backward, if any.
        sticky: true if it stays off once a condition was true.
    """

    off: Call
    shard: Sharding
    backward: Call
    step: Call
    late: Call | None
    sticky: bool


def unreduced_steps(program: Program) -> Iterator[UnreducedStep]:
    """Yield steps before which no backward reduced the model's gradients."""
    for trace in program.traces:
        for name in SWITCHES:
            switches = trace.calls(name)
            for step in trace.calls("step") if switches else ():
                yield from _Switching(program, trace, switches).unreduced(step)


@dataclass(frozen=True, slots=True)
class _Switching:
    """The calls on one path that turn one kind of reduction off and on."""

    program: Program
    trace: Trace
    switches: list[Call]

    def unreduced(self, step: Call) -> Iterator[UnreducedStep]:
        optimizer = _stepped(step)
        if optimizer is None:
            return
        for off in self.switches:
            module = followed(off.receiver)
            if off.time > step.time or not _turns_off(off) or not isinstance(module, Object):
                continue
            held = [capture.module for capture in optimizer.captures]
            shard = self.shard_of(module, off)
            if shard is None or not all(_is_in(each, module) for each in held):
                continue
            fact = self.judged(off, module, shard, step, optimizer)
            if fact is not None:
                yield fact
                return

    def shard_of(self, module: Object, off: Call) -> Sharding | None:
        """Return what makes ``module`` a unit, if ``off`` affects such a unit."""
        shard = unit_of(self.trace, module)
        if shard is None or shard.module is not module or shard.time > off.time:
            return None
        if off.name == "set_requires_all_reduce" and not is_two_dimensional(self.trace, shard):
            return None
        return shard if self.program.together(off.site, shard.site) else None

    def judged(
        self, off: Call, module: Object, shard: Sharding, step: Call, optimizer: Object
    ) -> UnreducedStep | None:
        backwards = self.backwards(step, optimizer)
        own = [b for b in backwards if b.time > off.time]
        others = [each for each in self.switches if _concerns(each, module)]
        if not own or _is_divergent(off.site) or self.is_indirect(off, step):
            return None
        uncertain = next((b for b in own if self.is_sticky(off, b, others)), None)
        if uncertain is not None:
            known = not self.given_away(module, off, None)
            return UnreducedStep(off, shard, uncertain, step, None, True) if known else None
        if not all(self.is_off(b, others) for b in backwards):
            return None
        if self.given_away(module, off, step) or off is not self.last(own[0], others):
            return None
        late = next((e for e in others if own[-1].time < e.time < step.time), None)
        if late is not None and not self.leads_straight(late, step):
            return None
        return UnreducedStep(off, shard, own[0], step, late, False)

    def backwards(self, step: Call, optimizer: Object) -> list[Call]:
        """Return the backward passes whose gradients a step may use; in a loop, later ones, too."""
        steps = [s for s in self.trace.calls("step") if _stepped(s) is optimizer]
        before = max((s.time for s in steps if s.time < step.time), default=0)
        return [
            event
            for event in self.trace.calls(*BACKWARDS)
            if before < event.time < step.time
            or (event.time > step.time and share_loop(self.program, event.site, step.site))
        ]

    def last(self, event: Call, others: list[Call]) -> Call | None:
        """Return the last call that surely ran before ``event``."""
        before = [each for each in others if each.time < event.time]
        return next((each for each in before[::-1] if self.is_certain(each, event)), None)

    def is_off(self, backward: Call, others: list[Call]) -> bool:
        """True if reduction is surely off in ``backward``, in every iteration."""
        set_by = self.last(backward, others)
        if set_by is None or not _turns_off(set_by):
            return False
        between = [e for e in others if set_by.time < e.time < backward.time]
        around = loops_around(self.program, backward.site)
        inner = around - loops_around(self.program, set_by.site)
        again = [
            e
            for e in others
            if e.time > backward.time and inner & loops_around(self.program, e.site)
        ]
        return all(map(_turns_off, between + again))

    def is_certain(self, switch: Call, event: Call) -> bool:
        """True if every path to ``event`` passed ``switch``."""
        held = {(g.key, g.taken) for g in event.site.guards} | set(self.trace.decisions)
        return all((g.key, g.taken) in held for g in switch.site.guards)

    def is_sticky(self, off: Call, backward: Call, others: list[Call]) -> bool:
        """True if ``off`` depends on a step count, and nothing ever undoes it."""
        return (
            any(guard.progress for guard in off.site.guards)
            and share_loop(self.program, off.site, backward.site)
            and not self.is_certain(off, backward)
            and all(map(_turns_off, others))
        )

    def given_away(self, module: Object, off: Call, step: Call | None) -> bool:
        """True if unknown code had the module in between, or at any time after."""
        family = {module, *module.ancestors()}
        return any(
            escape.time > off.time
            and (step is None or escape.time < step.time)
            and any(item in family or module in item.ancestors() for item in escape.objects)
            for escape in self.trace.escapes
        )

    def leads_straight(self, late: Call, step: Call) -> bool:
        """True if nothing between turning reduction on and the step can be a backward."""
        called = [*self.trace.called, *((e.time, e.name) for e in self.trace.of(Call))]
        names = [name for time, name in called if late.time < time < step.time]
        return all(name.rpartition(".")[2] in _BEFORE_A_STEP for name in names)

    def is_indirect(self, off: Call, step: Call) -> bool:
        """True if the files refer to the method outside of the analyzed calls, as callbacks do."""
        reached = {id(each.site.node) for each in self.switches}
        return any(
            _refers(node, off.name) and not self.is_reached(path, node, reached)
            for path in {off.site.path, step.site.path}
            for node in self.program.tree(path).walk(off.name)
        )

    def is_reached(self, path: str, node: ir.Node, reached: set[int]) -> bool:
        tree = self.program.tree(path)
        call = tree.parent(node)
        if isinstance(node, ir.Constant):
            return (
                isinstance(tree.parent(call), ir.Call) and _called(tree.parent(call)) == "hasattr"
            )
        if not isinstance(call, ir.Call) or call.func is not node:
            return False
        nested = sum(isinstance(above, ir.Function) for above in tree.ancestors(call)) > 1
        return id(call) in reached or not (nested or tree.in_lambda(call))


def _stepped(step: Call) -> Object | None:
    """Return the optimizer that steps, directly or by a scaler, without a closure."""
    given = step.argument(0, "optimizer")
    receiver = followed(step.receiver)
    if isinstance(receiver, Object) and receiver.captures:
        return None if isinstance(given, FunctionValue) or step.arguments.open else receiver
    return given if isinstance(given, Object) and given.captures else None


def _turns_off(switch: Call) -> bool:
    """True if the argument is a literal False; values from settings may change."""
    given = switch.argument(0, switch.name.removeprefix("set_"))
    recurse: Value | None = switch.arguments.keywords.get("recurse")
    call = switch.site.node
    plain = isinstance(call, ir.Call) and all(
        not isinstance(argument.value, ir.Attribute) for argument in call.args
    )
    return (
        plain
        and isinstance(given, Const)
        and given.value is False
        and (recurse is None or (isinstance(recurse, Const) and recurse.value is True))
    )


def _concerns(switch: Call, module: Object) -> bool:
    """True if a call may set the flag of ``module``, its parts, or an unknown module."""
    receiver = followed(switch.receiver)
    if not isinstance(receiver, Object) or not receiver.sharded:
        return True
    return _is_in(receiver, module) or _is_in(module, receiver)


def _is_in(part: Object, whole: Object) -> bool:
    return part is whole or whole in part.ancestors()


def _is_divergent(site: Site) -> bool:
    return any(guard.divergent for guard in site.guards)


def _called(call: ir.Node) -> str:
    if not isinstance(call, ir.Call):
        return ""
    if isinstance(call.func, ir.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ir.Name) else ""


def _refers(node: ir.Node, name: str) -> bool:
    if isinstance(node, ir.Attribute):
        return node.attr == name
    return isinstance(node, ir.Constant) and node.value == name
