"""Roots that an evaluation leaves unsharded when a state is taken or loaded."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.gradient_modes import NO_GRADIENTS, gradient_mode
from fsdplint.engine.interpreter.events import Trace
from fsdplint.engine.interpreter.values import Object
from fsdplint.engine.program import Program
from fsdplint.fixes.arguments import argument_of
from fsdplint.fixes.code import Code
from fsdplint.fixes.names import dotted
from fsdplint.knowledge.calls import BACKWARDS
from fsdplint.knowledge.checkpoints import (
    GET_MODEL_STATE,
    GET_OPTIMIZER_STATE,
    SET_MODEL_STATE,
    SET_OPTIMIZER_STATE,
)
from fsdplint.migrate.step import Change, Context, Found, attempt, kept

_RESHARD = "reshard"
# They take gathered parameters for shards and fail; `get_model_state_dict` reshards (torch 2.13).
_FAIL = (SET_MODEL_STATE, GET_OPTIMIZER_STATE, SET_OPTIMIZER_STATE)
_WHY = "the forward before this leaves the root unsharded; call `reshard()` on it first, by hand"
_WHAT = "reshard the root, which the forward before this leaves unsharded"


def reshards(context: Context) -> Iterator[Found]:
    """Yield a change for each state of a model whose last forward had no backward."""
    for node, path in _open(context.program).items():
        code = Code.of(context.program.tree(path))
        yield from attempt(code, node, partial(_resharded, code, node))


def left_open(context: Context) -> Iterator[Found]:
    """Yield the states that still fail, in the result of a migration."""
    for node, path in _open(context.program).items():
        code = Code.of(context.program.tree(path))
        if _resharded(code, node) is not None:
            yield kept(code, node, _WHY)


def _open(program: Program) -> dict[ir.Node, str]:
    """Return the calls that fail on a root which is not sharded by then."""
    found: dict[ir.Node, str] = {}
    for trace in program.traces:
        for load in trace.calls(*_FAIL):
            model = load.argument(0, "model")
            if isinstance(model, Object) and _is_open(program, trace, model, load.time):
                found[load.site.node] = load.site.path
    return found


def _is_open(program: Program, trace: Trace, model: Object, time: int) -> bool:
    forwards = [c for c in trace.calls("forward") if c.receiver is model and c.time < time]
    if not forwards:
        return False
    # Of a forward without gradients, no backward reshards the root.
    recorded = gradient_mode(program, forwards[-1].site) not in NO_GRADIENTS
    closing = trace.calls(*(BACKWARDS if recorded else ()), _RESHARD)
    closing += [c for c in trace.calls(GET_MODEL_STATE) if c.argument(0, "model") is model]
    return not any(forwards[-1].time < c.time < time for c in closing)


def _resharded(code: Code, load: ir.Node) -> Change | None:
    given = argument_of(load, 0, "model") if isinstance(load, ir.Call) else None
    name = None if given is None else dotted(given.value)
    statement = code.statement(load)
    line = f"{name}.{_RESHARD}()"
    above = [s for s in code.block(statement).statements if s.start < statement.start]
    if name is None or any(code.slice(each) == line for each in above):
        return None
    text = f"{code.indentation(statement)}{line}{code.newline}"
    edit = code.insert_lines(code.line_start(statement.start), text)
    return Change(code.span(load), _WHAT, (edit,))
