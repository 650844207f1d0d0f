"""Files that one rank writes, since all would write the same file at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.scripts import is_used_alone
from fsdplint.engine.facts.state_files import one_per_rank
from fsdplint.engine.interpreter.events import Call, PlainWrite, Trace
from fsdplint.engine.interpreter.values import Mapping, StateDict
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.imports import Imports
from fsdplint.knowledge.checkpoints import SET_MODEL_STATE, SET_OPTIMIZER_STATE, TORCH_LOAD
from fsdplint.knowledge.collectives import BARRIER
from fsdplint.knowledge.launch import INIT
from fsdplint.knowledge.names import DISTRIBUTED
from fsdplint.migrate.single.changes_files import changes_files
from fsdplint.migrate.single.rank_zero import on_rank_zero
from fsdplint.migrate.step import Change, Context, Found, attempt

_METHOD = "load_state_dict"
_WHAT = "write the file on rank 0 only"


def writes(context: Context) -> Iterator[Found]:
    """Yield a change for each write of all ranks, with what its block does to files below it.

    A write of a sharded model's state is left to the step that gathers it.
    """
    sharded: set[ir.Node] = set()
    found: dict[ir.Node, str] = {}
    for trace in context.program.traces:
        for write in trace.of(PlainWrite):
            node, path = write.site.node, write.site.path
            if write.states:
                sharded.add(node)
            elif path in context.files and _is_by_all(context, trace, write):
                found[node] = path
    for node, path in found.items():
        if node not in sharded:
            code = Code.of(context.program.tree(path))
            yield from attempt(code, node, partial(_on_one, context, code, node))


def waits(context: Context) -> Iterator[Found]:
    """Yield a change for each load that may come before rank 0 has written the file."""
    found: dict[ir.Node, str] = {}
    for trace in context.program.traces:
        times = [write.time for write in trace.of(PlainWrite)]
        barriers = [call.time for call in trace.calls(BARRIER)]
        for load in trace.calls(_METHOD, SET_MODEL_STATE, SET_OPTIMIZER_STATE):
            written = max((time for time in times if time < load.time), default=None)
            waited = any(written < time < load.time for time in barriers) if written else True
            if not waited and load.site.path in context.files and not _is_made(load):
                found[load.site.node] = load.site.path
    for node, path in found.items():
        code = Code.of(context.program.tree(path))
        yield from attempt(code, node, partial(_waited, context, code, node))


def _is_made(load: Call) -> bool:
    """True if the program makes the state itself, rather than read it from a file."""
    state = load.argument(0 if load.name == _METHOD else 1, "state_dict")
    return isinstance(state, (Mapping, StateDict))


def _waited(context: Context, code: Code, load: ir.Node) -> Change:
    statement, imports = code.statement(_read(context, code, load)), Imports(code, load)
    around = code.parent(statement)
    while isinstance(around, ir.With) and any(map(_opens, around.items)):
        statement, around = around, code.parent(around)
    dist = imports.module(DISTRIBUTED, "dist")
    lines = [f"{dist}.barrier()"]
    if is_used_alone(context.program, code.path):
        lines = [f"if {dist}.is_initialized():", f"{code.unit}{lines[0]}"]
    at, indent = code.line_start(statement.start), code.indentation(statement)
    edit = code.insert_lines(at, "".join(f"{indent}{line}{code.newline}" for line in lines))
    return Change(code.span(load), "wait until rank 0 has written the file", (edit,), (imports,))


def _read(context: Context, code: Code, load: ir.Node) -> ir.Node:
    """Return the call that reads the file of a state, or the load if it does so itself."""
    names = (node for node in ir.walk(load) if isinstance(node, ir.Name))
    values = (v for name in names for v in code.assigned(name) if v.start < load.start)
    calls = (n for value in values for n in ir.walk(value) if isinstance(n, ir.Call))
    return next((c for c in calls if context.name(code, c.func) == TORCH_LOAD), load)


def _is_by_all(context: Context, trace: Trace, write: PlainWrite) -> bool:
    """True if all ranks surely write the same file."""
    started = any(call.time < write.time for call in trace.calls(INIT))
    guarded = any(context.program.is_rank_test(guard) for guard in write.site.guards)
    own = one_per_rank(context.program, write.site, write.target, guarded, 1)
    return started and not guarded and not own


def _on_one(context: Context, code: Code, write: ir.Node) -> Change:
    statement = code.statement(write)
    around = code.parent(statement)
    while isinstance(around, ir.With) and any(map(_opens, around.items)):
        statement, around = around, code.parent(around)
    whole = isinstance(statement, ir.With) or (
        isinstance(statement, ir.Expression) and statement.value is write
    )
    if not whole:
        raise NoFixError("all ranks write this file; write it on rank 0 only by hand")
    group = [statement]
    for each in code.block(statement).statements:
        if each.start > statement.start:
            if not changes_files(context, code, each):
                break
            group.append(each)
    return on_rank_zero(context, code, group, _WHAT)


def _opens(item: ir.WithItem) -> bool:
    return isinstance(item.value, ir.Call) and ir.last_name(item.value.func) == "open"
