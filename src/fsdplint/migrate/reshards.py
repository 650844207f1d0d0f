"""Roots that an evaluation leaves unsharded when a state is taken or loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.gradient_modes import NO_GRADIENTS, gradient_mode
from fsdplint.engine.facts.sharding import unit_of
from fsdplint.engine.interpreter.events import Trace
from fsdplint.engine.interpreter.values import Object
from fsdplint.engine.program import Program
from fsdplint.fixes.arguments import argument_of
from fsdplint.fixes.code import Code
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import dotted
from fsdplint.knowledge.calls import BACKWARDS, Generation
from fsdplint.knowledge.checkpoints import (
    GET_MODEL_STATE,
    GET_OPTIMIZER_STATE,
    GET_STATE,
    SET_MODEL_STATE,
    SET_OPTIMIZER_STATE,
    SET_STATE,
)
from fsdplint.knowledge.names import FSDP2_MODULE
from fsdplint.migrate.modes import may_stay_whole, wraps_by_ddp
from fsdplint.migrate.step import Change, Context, Found, attempt, kept

_RESHARD = "reshard"
# They take gathered parameters for shards and fail, and those that shard them (torch 2.13).
_FAIL = (SET_MODEL_STATE, GET_OPTIMIZER_STATE, SET_OPTIMIZER_STATE, SET_STATE)
_SHARD = (_RESHARD, GET_MODEL_STATE, GET_STATE, "state_dict")
_WHY = "the forward before this leaves the root unsharded; call `reshard()` on it first, by hand"
_WHAT = "reshard the root, which the forward before this leaves unsharded"


def reshards(context: Context) -> Iterator[Found]:
    """Yield a change for each state of a model whose last forward had no backward."""
    for node, (path, may_be_whole) in _open(context.program).items():
        code = Code.of(context.program.tree(path))
        tested = may_be_whole or wraps_by_ddp(context)
        yield from attempt(code, node, partial(_resharded, code, node, tested))


def left_open(context: Context) -> Iterator[Found]:
    """Yield the states that still fail, in the result of a migration."""
    for node, (path, may_be_whole) in _open(context.program).items():
        code = Code.of(context.program.tree(path))
        if _resharded(code, node, may_be_whole) is not None:
            yield kept(code, node, _WHY)


def _open(program: Program) -> Mapping[ir.Node, tuple[str, bool]]:
    """Return the calls that fail on a root which is not sharded by then.

    Each is with its file, and whether the program may run it on a model that nothing shards.
    """
    found: dict[ir.Node, tuple[str, bool]] = {}
    for trace in program.traces:
        for call in trace.calls(*_FAIL):
            model = call.argument(0, "model")
            if not isinstance(model, Object) or model.generation() is Generation.FSDP1:
                continue
            if _is_open(program, trace, model, call.time):
                shard = unit_of(trace, model)
                may_be_whole = shard is not None and may_stay_whole(program, shard)
                found[call.site.node] = (call.site.path, may_be_whole)
    return found


def _is_open(program: Program, trace: Trace, model: Object, time: int) -> bool:
    forwards = [c for c in trace.calls("forward") if c.receiver is model and c.time < time]
    if not forwards:
        return False
    # Of a forward without gradients, no backward reshards the root.
    recorded = gradient_mode(program, forwards[-1].site) not in NO_GRADIENTS
    closing = list(trace.calls(*BACKWARDS)) if recorded else []
    closing += [c for c in trace.calls(*_SHARD) if model in (c.receiver, c.argument(0, "model"))]
    return not any(forwards[-1].time < c.time < time for c in closing)


def _resharded(code: Code, call: ir.Node, may_be_whole: bool) -> Change | None:
    given = argument_of(call, 0, "model") if isinstance(call, ir.Call) else None
    name = None if given is None else dotted(given.value)
    statement = code.statement(call)
    line = f"{name}.{_RESHARD}()"
    above = [s for s in code.block(statement).statements if s.start < statement.start]
    if name is None or any(line in code.slice(each) for each in above):
        return None
    indent, imports = code.indentation(statement), Imports(code, call)
    lines = [line]
    if may_be_whole:
        unit = imports.name(*FSDP2_MODULE.rsplit(".", 1))
        lines = [f"if isinstance({name}, {unit}):", f"{code.unit}{line}"]
    text = "".join(f"{indent}{each}{code.newline}" for each in lines)
    edit = code.insert_lines(code.line_start(statement.start), text)
    return Change(code.span(call), _WHAT, (edit,), (imports,))
