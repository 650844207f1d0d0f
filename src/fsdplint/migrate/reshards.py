"""Roots that an evaluation leaves unsharded when a state is loaded."""

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
from fsdplint.knowledge.checkpoints import SET_MODEL_STATE
from fsdplint.migrate.step import Change, Context, Found, attempt

_RESHARD = "reshard"
_WHAT = "reshard the root, which the forward before this leaves unsharded"


def reshards(context: Context) -> Iterator[Found]:
    """Yield a change for each load into a model whose last forward had no backward.

    `set_model_state_dict` then fails, since it takes the gathered parameters for shards.
    """
    found: dict[ir.Node, str] = {}
    for trace in context.program.traces:
        for load in trace.calls(SET_MODEL_STATE):
            model = load.argument(0, "model")
            if isinstance(model, Object) and _is_open(context.program, trace, model, load.time):
                found[load.site.node] = load.site.path
    for node, path in found.items():
        code = Code.of(context.program.tree(path))
        yield from attempt(code, node, partial(_resharded, code, node))


def _is_open(program: Program, trace: Trace, model: Object, time: int) -> bool:
    forwards = [c for c in trace.calls("forward") if c.receiver is model and c.time < time]
    if not forwards:
        return False
    # Of a forward without gradients, no backward reshards the root.
    recorded = gradient_mode(program, forwards[-1].site) not in NO_GRADIENTS
    closing = trace.calls(*(BACKWARDS if recorded else ()), _RESHARD)
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
