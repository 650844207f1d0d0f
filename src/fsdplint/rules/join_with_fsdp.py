"""A finding is an argument of ``Join``, or an element of its list, that FSDP shards before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.literal_arguments import argument
from fsdplint.engine.interpreter.events import Call, Sharding, Trace
from fsdplint.engine.interpreter.values import ClassValue, Object, Sequence, Value, followed
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity, Span
from fsdplint.fixes.code import Code, NoFixError, builder
from fsdplint.knowledge.launch import JOINS
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD602",
    summary="`Join` gets an FSDP model, which it does not support",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
)


_HOOK = "join_hook"


@dataclass(frozen=True, slots=True)
class JoinedUnit:
    """A ``Join`` that is given what ``shard`` shards.

    Attributes:
        node: the model as it is written in the list, or the list.
        listed: the program names the list, and not the model.
    """

    call: Call
    node: ir.Node
    shard: Sharding
    listed: bool


def joined_units(program: Program) -> Iterator[JoinedUnit]:
    """Calls of ``Join`` on models of FSDP, which have no hook for it."""
    for trace in program.traces:
        for call in trace.calls(*JOINS):
            written, given = argument(call.site.node, 0, "joinables"), call.argument(0, "joinables")
            if written is None or given is None:
                continue
            several = isinstance(given, Sequence)
            items = given.items if isinstance(given, Sequence) else [given]
            for index, item in enumerate(items):
                shard = _sharded(trace, call, item)
                if shard is not None:
                    node = _element(written.value, index)
                    listed = several and node is written.value
                    yield JoinedUnit(call, node, shard, listed)


def _element(written: ir.Node, index: int) -> ir.Node:
    if isinstance(written, ir.Collection) and index < len(written.elements):
        return written.elements[index]
    return written


def _sharded(trace: Trace, call: Call, given: Value) -> Sharding | None:
    module = followed(given)
    cls = module.cls if isinstance(module, Object) else None
    if isinstance(cls, ClassValue) and cls.lookup(_HOOK) is not None:
        return None
    shards = (s for s in trace.units() if s.module is module and s.time < call.time)
    return next(shards, None)


def reports(program: Program) -> Iterator[Report]:
    for fact in joined_units(program):
        site, shard = fact.call.site, fact.shard
        text = f"`{program.text(site.path, fact.node)}`"
        whose = f"the model in {text}" if fact.listed else text
        yield Report(
            Span(site.path, fact.node.start, fact.node.end),
            f"`Join` needs the `{_HOOK}` of {whose}, which {shard.generation.value} does not "
            "have: the call crashes",
            "holds a model without it" if fact.listed else f"has no `{_HOOK}`",
            (
                program.evidence(shard.site, "sharded here"),
                *program.conditions(site, shard.site),
            ),
            partial(without_join, Code.of(program.tree(site.path)), site.node, fact.node),
        )


@builder
def without_join(code: Code, call: ir.Node, module: ir.Node) -> Fix:
    """Take ``module`` from the list, or the whole context away where nothing is left in it."""
    joined = call.args[0].value if isinstance(call, ir.Call) and call.args else None
    if isinstance(joined, ir.Collection) and len(joined.elements) > 1:
        return _without_element(code, joined, module)
    statement = code.statement(call)
    if not isinstance(statement, ir.With) or [item.value for item in statement.items] != [call]:
        raise NoFixError(f"`{code.short(call)}` is not a context of its own")
    return Fix("train without `Join`", Safety.UNSAFE, tuple(code.unwrapped(statement)))


def _without_element(code: Code, joined: ir.Collection, module: ir.Node) -> Fix:
    elements = list(joined.elements)
    index = next((i for i, each in enumerate(elements) if each is module), None)
    if index is None:
        raise NoFixError("the list is built elsewhere; remove the sharded model from it by hand")
    if index:
        edit = code.edit(elements[index - 1].end, module.end, "")
    else:
        edit = code.edit(module.start, elements[1].start, "")
    return Fix(f"join without `{code.short(module)}`", Safety.UNSAFE, (edit,))
