"""Memory formats of parameters: FSDP2 takes contiguous ones only."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.sharding import unit_of
from fsdplint.engine.interpreter.events import Call
from fsdplint.engine.interpreter.values import Object
from fsdplint.finding import Edit
from fsdplint.fixes.arguments import without
from fsdplint.fixes.code import Code
from fsdplint.knowledge.names import MEMORY_FORMATS
from fsdplint.migrate.step import Change, Context, Found, attempt

_DIFFERS = "layers get inputs in this format as before, and may round in another way"


def memory_formats(context: Context) -> Iterator[Found]:
    """Yield a change for each call that gives a sharded model another memory format."""
    seen: dict[ir.Node, Call] = {}
    for trace in context.program.traces:
        for call in trace.calls("to"):
            if isinstance(call.receiver, Object) and unit_of(trace, call.receiver) is not None:
                seen[call.site.node] = call
    for node, call in seen.items():
        code = Code.of(context.program.tree(call.site.path))
        if not isinstance(node, ir.Call) or call.site.path not in context.files:
            continue
        given = next((each for each in node.args if each.keyword == "memory_format"), None)
        if given is not None and context.name(code, given.value) in MEMORY_FORMATS:
            yield from attempt(code, node, partial(_contiguous, code, node, given))


def _contiguous(code: Code, call: ir.Call, given: ir.Argument) -> Change:
    what = f"drop `{code.slice(given)}`: FSDP2 shards contiguous parameters only"
    return Change(code.span(call), what, tuple(_dropped(code, call, given)), differs=_DIFFERS)


def _dropped(code: Code, call: ir.Call, given: ir.Argument) -> list[Edit]:
    """Return the call without the argument; without any, the model itself, or nothing."""
    kept = [each for each in call.args if each is not given]
    if kept:
        return without(code, call.args, kept)
    assert isinstance(call.func, ir.Attribute)
    model, statement = code.slice(call.func.value), code.statement(call)
    alone = isinstance(statement, (ir.Assign, ir.Expression)) and statement.value is call
    again = [code.slice(each) for each in getattr(statement, "targets", ())] in ([], [model])
    if alone and again and len(code.block(statement).statements) > 1:
        return [code.delete_lines(*code.extent(statement))]
    return [code.edit(call.start, call.end, model)]
