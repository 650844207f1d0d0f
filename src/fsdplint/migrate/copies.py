"""Models beside the trained one that take its weights, such as moving averages of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.sharding import unit_of
from fsdplint.engine.interpreter.events import Call, Shard, Store
from fsdplint.engine.interpreter.values import Object, Parameters, Tensor, Value, contained
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import dotted
from fsdplint.knowledge.calls import COPIES_MODULE
from fsdplint.knowledge.tensors import IN_PLACE
from fsdplint.migrate.sharding import sharding_lines
from fsdplint.migrate.step import Change, Context, Found, attempt, kept

_MIXED = (
    "an operation takes DTensors or plain tensors, but not both; shard the other model like this "
    "one by hand"
)


# A forward without backward, as in an evaluation, otherwise leaves the weights of the root whole.
_RESHARDS = "reshard_after_forward=True"


def copies(context: Context) -> Iterator[Found]:
    """Yield a change for each copy of a model that is sharded later, which is sharded as well.

    Its weights then have the same shards as those of the model, so that they can be averaged.
    """
    program = context.program
    seen: dict[ir.Node, tuple[str, str, Shard]] = {}
    for trace in program.traces:
        for call in trace.calls(*COPIES_MODULE):
            keyword, attribute = COPIES_MODULE[call.name]
            module, made = call.argument(0, keyword), call.result
            held = made.attrs.get(attribute) if isinstance(made, Object) and attribute else made
            if isinstance(held, Object) and unit_of(trace, held) is None:
                own = [s for s in trace.of(Shard) if s.module is module and s.time > call.time]
                path, node = _constructor(call)
                seen.update({node: (path, attribute, own[-1])} if own else {})
    for node, (path, attribute, shard) in seen.items():
        code = Code.of(program.tree(path))
        yield from attempt(code, node, partial(_sharded, code, node, attribute, shard))


def _constructor(call: Call) -> tuple[str, ir.Node]:
    """Return the call that makes an object, rather than those of its bases' constructors."""
    frames = (
        (path, node)
        for path, node in reversed(call.site.frames())
        if not isinstance(node, ir.Call) or ir.last_name(node.func) != "__init__"
    )
    return next(frames)


def _sharded(code: Code, copied: ir.Node, attribute: str, shard: Shard) -> Change:
    statement = code.statement(copied)
    place = code.statement(shard.call) if shard.site.path == code.path else None
    targets = statement.targets if isinstance(statement, ir.Assign) else ()
    name = dotted(targets[0]) if len(targets) == 1 else None
    name = f"{name}.{attribute}" if name and attribute else name
    if name is None or place is None or code.parent(place) is not code.parent(statement):
        raise NoFixError(
            "its weights are whole, and do not mix with the shards of the model; shard this copy "
            "like the model by hand"
        )
    imports = Imports(code, place)
    above = [s for s in code.block(place).statements if s.end < place.start]
    loops = [s for s in above if isinstance(s, ir.For) and ".broadcast(" in code.slice(s)]
    used = code.slice(loops[-1].target) if loops else ""
    lines = sharding_lines(code, imports, name, variable=used, options=_RESHARDS)
    indent = code.indentation(place)
    text = "".join(indent + line + code.newline for line in lines)
    edit = code.insert_lines(code.after(place), text)
    what = f"shard `{name}` like the model, so that their weights have the same shards"
    return Change(code.span(copied), what, (edit,), (imports,))


def mixed(context: Context) -> Iterator[Found]:
    """Yield each in-place change of weights that combines a sharded model and a whole one."""
    program = context.program
    found: dict[ir.Stmt, str] = {}
    for trace in program.traces:
        kinds: dict[ir.Stmt, set[bool]] = {}
        events: list[Call | Store] = [*trace.calls(*sorted(IN_PLACE)), *trace.of(Store)]
        for event in events:
            path = event.site.path
            statement = program.tree(path).statement(event.site.node)
            given = _given(event)
            units = (unit_of(trace, module) for module in _modules(given))
            known = {unit is not None and unit.time < event.time for unit in units}
            kinds.setdefault(statement, set()).update(known)
            if len(kinds[statement]) > 1:
                found[statement] = path
    for statement, path in found.items():
        yield kept(Code.of(program.tree(path)), statement, _MIXED)


def _given(event: Call | Store) -> list[Value]:
    """Return what a call or an assignment combines; of assignments, those of a tensor's data."""
    if isinstance(event, Store):
        return [event.owner, event.value] if event.name == "data" else []
    return [*([event.receiver] if event.receiver is not None else []), *event.arguments.values()]


def _modules(values: Iterable[Value]) -> Iterator[Object]:
    for value in values:
        for item in contained(value):
            if isinstance(item, (Parameters, Tensor)):
                yield item.module
