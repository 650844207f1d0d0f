"""The fix of a write of slices: every rank gathers, one writes."""

from __future__ import annotations

from fsdplint.engine import ir
from fsdplint.engine.facts.writes import ShardedWrite
from fsdplint.engine.interpreter.events import Call, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import Object, StateDict
from fsdplint.engine.program import Program
from fsdplint.finding import Fix
from fsdplint.fixes.code import Code, Declined
from fsdplint.fixes.gather_state import GatheredState, gather_state


def gathered_write(program: Program, fact: ShardedWrite) -> Fix | Declined:
    site = fact.write.site
    if any(state.source.calls != site.calls for state in fact.states):
        return Declined("the state is taken in one function and written in another")
    code = Code.of(program.tree(site.path))
    write = site.node
    assert isinstance(write, ir.Call)
    gathered = [_gathered(program, fact.trace, state) for state in fact.states]
    states = [state for state in gathered if state is not None]
    if len(states) < len(gathered):
        return Declined("it is not clear which model the state belongs to")
    function = code.function(write)
    own = [guard for guard in fact.guards if guard.path == site.path]
    tests = [code.statement(guard.test) for guard in own]
    local = [test for test in tests if isinstance(test, ir.If) and code.function(test) is function]
    return gather_state(code, write, states, local, rank_zero=len(local) < len(fact.guards))


def model_name(
    program: Program, trace: Trace, site: Site, model: Object, optimizer: Object
) -> str | None:
    """What the function of the call at ``site`` calls the model of an optimizer."""
    for call in trace.of(Call):
        if call.names and (call.site.node, call.site.calls) == (site.node, site.calls):
            for name, item in call.names.items():
                if item is model:
                    return name
    for capture in optimizer.captures:
        taken = receiver(capture.source.node)
        here = capture.source.calls == site.calls and capture.module is model
        if here and taken is not None and not program.tree(site.path).is_rebound(taken):
            return program.text(site.path, taken)
    return None


def _gathered(program: Program, trace: Trace, state: StateDict) -> GatheredState | None:
    """The expression to replace, with the texts of its model and optimizer."""
    path, node = state.source.path, state.source.node
    target = receiver(node)
    if target is None or not isinstance(node, ir.Call):
        return None
    text = program.text(path, target)
    if state.optimizer is None:
        return GatheredState(node, text)
    model = model_name(program, trace, state.source, state.owner, state.optimizer)
    return None if model is None else GatheredState(node, model, text)


def receiver(node: ir.Node) -> ir.Expr | None:
    """What the method is called on, of a method call."""
    function = node.func if isinstance(node, ir.Call) else None
    return function.value if isinstance(function, ir.Attribute) else None
