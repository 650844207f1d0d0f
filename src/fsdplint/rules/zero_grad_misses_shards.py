"""A model that clears gradients while its parameters are gathered, and misses its shards."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.cleared_gradients import (
    GatheredClear,
    clears,
    gathered_clears,
    optimizer_of,
)
from fsdplint.engine.facts.coverage import trains_outside
from fsdplint.engine.facts.loops import share_loop
from fsdplint.engine.frontend.tree import Tree
from fsdplint.engine.interpreter.events import BuildOptimizer, Call, Shard, Store
from fsdplint.engine.program import Program
from fsdplint.finding import Safety, Severity, Span
from fsdplint.fixes.clear_gradients import clear_by_optimizer
from fsdplint.fixes.code import Code
from fsdplint.knowledge.calls import BACKWARDS, STATE_HELPERS
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD324",
    summary="`zero_grad` between forward and backward misses the gradients of the root",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="its precision on public code has not been measured.",
)

# They reshard the root.
_STATE = ("state_dict", "load_state_dict", "save_pretrained", *STATE_HELPERS)


def missed_gradients(program: Program) -> Iterator[tuple[GatheredClear, Call]]:
    """Yield places that miss gradients of a later step, with the forward that gathers the root."""
    found = list(gathered_clears(program))
    missing = {clear.event for clear in found}
    for clear in found:
        forward, site = _forward(clear), clear.event.site
        backwards = clear.trace.calls(*BACKWARDS)
        repeated = any(share_loop(program, site, each.site) for each in backwards)
        if forward is None or not repeated or not _has_own(clear):
            continue
        if program.together(site, clear.shard.site) and not _may_clear(program, clear, missing):
            yield clear, forward


def _may_clear(program: Program, clear: GatheredClear, missing: set[Call | Store]) -> bool:
    """True if other code may clear the gradients of the shards."""
    trace, site = clear.trace, clear.event.site
    others = (event for event, _, _ in clears(trace) if event not in missing)
    if any(share_loop(program, site, event.site) for event in others):
        return True
    builds = trace.of(BuildOptimizer)
    given = {clear.shard.module, *clear.shard.module.ancestors(), *(b.optimizer for b in builds)}
    if any(given & e.objects and share_loop(program, site, e.site) for e in trace.escapes):
        return True
    own = {event.site.node for event in missing}
    paths = {trace.path, *(path for path, _ in site.frames())}
    return any(
        _writes(tree, n) and n not in own
        for tree in map(program.tree, paths)
        for n in tree.walk("grad")
    )


def _writes(tree: Tree, node: ir.Node) -> bool:
    """True for the ``p.grad`` in ``p.grad = None`` and ``p.grad.zero_()``."""
    if not isinstance(node, ir.Attribute) or node.attr != "grad":
        return False
    parent = tree.parent(node)
    assigned = isinstance(parent, ir.Assign) and node in parent.targets
    return assigned or (isinstance(parent, ir.Attribute) and parent.attr == "zero_")


def _forward(clear: GatheredClear) -> Call | None:
    """Return the last forward before the place, if nothing may have resharded the root since."""
    family = {clear.shard.module, *clear.shard.module.ancestors()}
    trace = clear.trace
    before = [call for call in trace.calls("forward", "unshard") if call.receiver in family]
    last = max((c for c in before if c.time < clear.time), key=lambda c: c.time, default=None)
    if last is None:
        return None
    resharded = any(last.time < each.time < clear.time for each in trace.calls(*_STATE))
    given = any(last.time < e.time < clear.time and family & e.objects for e in trace.escapes)
    return None if resharded or given else last


def _has_own(clear: GatheredClear) -> bool:
    """True if the gathered unit surely trains parameters that are in no unit inside it."""
    module = clear.shard.module
    inner = [each for each in clear.trace.of(Shard) if module in each.module.ancestors()]
    return trains_outside(clear.trace, module, inner)


def reports(program: Program) -> Iterator[Report]:
    for clear, forward in missed_gradients(program):
        site = clear.event.site
        node = _whole(program, clear)
        yield Report(
            Span(site.path, node.start, node.end),
            f"`{program.text(site.path, node)}` misses gradients: the forward "
            f"{program.where(forward.site, site)} gathers the root's parameters until the "
            "backward, and the gradients of their shards add up from step to step",
            "reaches only gathered parameters",
            (
                program.evidence(clear.shard.site, "sharded here"),
                program.evidence(forward.site, "gathers the root's parameters"),
                *program.conditions(site),
            ),
            partial(
                clear_by_optimizer, Code.of(program.tree(site.path)), site.node, optimizer_of(clear)
            ),
        )


def _whole(program: Program, clear: GatheredClear) -> ir.Node:
    """Return the call, or the whole assignment of a gradient."""
    node = clear.event.site.node
    if isinstance(clear.event, Call):
        return node
    return program.tree(clear.event.site.path).parent(node) or node
