"""When gradients are reduced: what steers it, and what cannot."""

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
# What a step may be prepared with: none of it computes gradients.
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
    """``no_sync()`` of an FSDP2 unit, which has no such method."""

    call: NoSync
    shard: Sharding


def missing_no_syncs(program: Program) -> Iterator[MissingNoSync]:
    """Calls of FSDP1's ``no_sync`` on an FSDP2 unit."""
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
        late: where it is turned on again, which is behind the last backward, if it is.
        sticky: a condition has to hold once for it to be off from then on.
    """

    off: Call
    shard: Sharding
    backward: Call
    step: Call
    late: Call | None
    sticky: bool


def unreduced_steps(program: Program) -> Iterator[UnreducedStep]:
    """Steps before which every backward ran while the model's gradients were not reduced."""
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
        """What makes ``module`` a unit, or says so, which ``off`` means something to."""
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
        """The backward passes whose gradients a step may use; in a loop, later ones too."""
        steps = [s for s in self.trace.calls("step") if _stepped(s) is optimizer]
        before = max((s.time for s in steps if s.time < step.time), default=0)
        return [
            event
            for event in self.trace.calls(*BACKWARDS)
            if before < event.time < step.time
            or (event.time > step.time and share_loop(self.program, event.site, step.site))
        ]

    def last(self, event: Call, others: list[Call]) -> Call | None:
        """The last call that surely came before ``event``."""
        before = [each for each in others if each.time < event.time]
        return next((each for each in before[::-1] if self.is_certain(each, event)), None)

    def is_off(self, backward: Call, others: list[Call]) -> bool:
        """Whether reduction is known to be off in ``backward``, whichever iteration it is in."""
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
        """Whether ``switch`` was reached wherever ``event`` is."""
        held = {(g.key, g.taken) for g in event.site.guards} | set(self.trace.decisions)
        return all((g.key, g.taken) in held for g in switch.site.guards)

    def is_sticky(self, off: Call, backward: Call, others: list[Call]) -> bool:
        """Whether a step count decides over ``off``, and nothing ever undoes it."""
        return (
            any(guard.progress for guard in off.site.guards)
            and share_loop(self.program, off.site, backward.site)
            and not self.is_certain(off, backward)
            and all(map(_turns_off, others))
        )

    def given_away(self, module: Object, off: Call, step: Call | None) -> bool:
        """Whether unknown code had the module in between, or at any time after."""
        family = {module, *module.ancestors()}
        return any(
            escape.time > off.time
            and (step is None or escape.time < step.time)
            and any(item in family or module in item.ancestors() for item in escape.objects)
            for escape in self.trace.escapes
        )

    def leads_straight(self, late: Call, step: Call) -> bool:
        """Whether nothing between turning reduction on and the step can be a backward pass."""
        called = [*self.trace.called, *((e.time, e.name) for e in self.trace.of(Call))]
        names = [name for time, name in called if late.time < time < step.time]
        return all(name.rpartition(".")[2] in _BEFORE_A_STEP for name in names)

    def is_indirect(self, off: Call, step: Call) -> bool:
        """Whether the files refer to the method where no path of ours calls it, as callbacks do."""
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
    """The optimizer that is stepped, directly or by a scaler, without a closure."""
    given = step.argument(0, "optimizer")
    receiver = followed(step.receiver)
    if isinstance(receiver, Object) and receiver.captures:
        return None if isinstance(given, FunctionValue) or step.arguments.open else receiver
    return given if isinstance(given, Object) and given.captures else None


def _turns_off(switch: Call) -> bool:
    """Whether the text itself says False; what comes from settings may change."""
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
    """Whether a call sets the flag of ``module``, or may: of parts of it, or of who knows what."""
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
