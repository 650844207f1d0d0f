from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.writes import ShardedWrite, sharded_writes
from fsdplint.engine.program import Program
from fsdplint.engine.values import StateDict
from fsdplint.finding import Evidence, Fix, Safety, Severity
from fsdplint.fixes.code import Code
from fsdplint.fixes.declined import Declined
from fsdplint.fixes.gather_state import GatheredState, gather_state
from fsdplint.rule import Report, rule


@rule(
    "FSD501",
    summary="a state dict of DTensor shards is written as if it were the model",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    clause="saves",
)
def sharded_state_saved(program: Program) -> Iterator[Report]:
    for fact in sharded_writes(program):
        site, state = fact.write.site, fact.states[0]
        what = program.text(state.source.path, state.source.node)
        whose = "this rank's slice" if fact.guards else "each rank's own slice"
        yield Report(
            program.span(site),
            f"`{fact.write.function}` writes `{what}`, whose tensors are DTensor shards: the file "
            f"holds {whose} of the model",
            "not the whole model",
            _evidence(program, fact),
            partial(_fix, program, fact),
        )


def _evidence(program: Program, fact: ShardedWrite) -> tuple[Evidence, ...]:
    return (
        program.evidence(fact.shard.site, "the parameters become DTensor shards"),
        *(program.evidence(state.source, "sharded state") for state in fact.states),
        *program.conditions(fact.write.site, fact.shard.site),
    )


def _fix(program: Program, fact: ShardedWrite) -> Fix | Declined:
    site = fact.write.site
    if any(state.source.calls != site.calls for state in fact.states):
        return Declined("the state is taken in one function and written in another")
    code = Code.of(program.tree(site.path))
    write = site.node
    assert isinstance(write, ir.Call)
    gathered = [_gathered(program, state, fact.states) for state in fact.states]
    states = [state for state in gathered if state is not None]
    if len(states) < len(gathered):
        return Declined("it is not clear which model the state belongs to")
    function = code.function(write)
    own = [guard for guard in fact.guards if guard.path == site.path]
    tests = [code.statement(guard.test) for guard in own]
    local = [test for test in tests if isinstance(test, ir.If) and code.function(test) is function]
    return gather_state(code, write, states, local, rank_zero=len(local) < len(fact.guards))


def _gathered(
    program: Program, state: StateDict, others: tuple[StateDict, ...]
) -> GatheredState | None:
    """The expression to replace, with the texts of its model and optimizer."""
    path, node = state.source.path, state.source.node
    target = _receiver(node)
    if target is None or not isinstance(node, ir.Call):
        return None
    receiver = program.text(path, target)
    if state.optimizer is None:
        return GatheredState(node, receiver)
    model = _model_text(program, state, others)
    return None if model is None else GatheredState(node, model, receiver)


def _model_text(program: Program, state: StateDict, others: tuple[StateDict, ...]) -> str | None:
    """How the function calls the optimizer's model: where it is saved too, or taken from."""
    for other in others:
        node = other.source.node
        receiver = _receiver(node)
        same = other.optimizer is None and other.owner is state.owner
        if not same or receiver is None:
            continue
        if not program.tree(other.source.path).is_rebound(receiver):
            return program.text(other.source.path, receiver)
    for capture in state.optimizer.captures if state.optimizer is not None else ():
        receiver = _receiver(capture.source.node)
        if capture.source.calls != state.source.calls or receiver is None:
            continue
        if not program.tree(capture.source.path).is_rebound(receiver):
            return program.text(capture.source.path, receiver)
    return None


def _receiver(node: ir.Node) -> ir.Expr | None:
    """What the method is called on, of a method call."""
    function = node.func if isinstance(node, ir.Call) else None
    return function.value if isinstance(function, ir.Attribute) else None
