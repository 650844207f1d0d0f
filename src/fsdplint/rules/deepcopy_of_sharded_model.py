"""Deep copies of models that contain FSDP2 units."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.sharding import as_state, exclude_each_other
from fsdplint.engine.interpreter.events import Call, Shard, Sharding, Trace
from fsdplint.engine.interpreter.values import Object
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined
from fsdplint.fixes.move import add_before
from fsdplint.fixes.names import LISTING, dotted
from fsdplint.knowledge.calls import COPIES_MODULE, Generation
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD213",
    summary="a model is deep-copied after it is sharded",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
)


_ALIKE = "make it before the sharding by hand, and shard it like the model"


@dataclass(frozen=True, slots=True)
class Copy:
    """A deep copy of a module.

    Attributes:
        first: the first call that shards the module or a part of it.
        around: the last such call before the copy.
    """

    call: Call
    first: Sharding
    around: Sharding


def copies(program: Program) -> Iterator[Copy]:
    """Yield deep copies of modules that surely are FSDP2 units or contain some."""
    for trace in program.traces:
        for call in trace.calls(*COPIES_MODULE):
            module = call.argument(0, COPIES_MODULE[call.name][0])
            if isinstance(module, Object) and module not in trace.picked:
                shards = [s for s in _units_in(trace, module, call) if _both(program, call, s)]
                if shards:
                    yield Copy(call, shards[0], shards[-1])


def _units_in(trace: Trace, module: Object, call: Call) -> list[Sharding]:
    return [
        shard
        for shard in trace.units()
        if shard.generation is Generation.FSDP2
        and shard.time < call.time
        and (shard.module is module or module in shard.module.ancestors())
    ]


def _both(program: Program, call: Call, shard: Sharding) -> bool:
    if exclude_each_other(call.site, shard.site):
        return False
    return program.together(call.site, shard.site)


def reports(program: Program) -> Iterator[Report]:
    for fact in copies(program):
        site = fact.call.site
        state = as_state(program, fact.around, site)
        yield Report(
            program.span(site),
            f"`{program.text(site.path, site.node)}` deep-copies a model that is {state}: FSDP2 "
            "modules do not support that, so the call crashes",
            "copies a sharded model",
            (
                program.evidence(fact.around.site, "sharded here"),
                *program.conditions(fact.around.site, site),
            ),
            partial(_fix, program, fact),
        )


def _fix(program: Program, fact: Copy) -> Fix | Declined:
    ours, theirs = fact.call.site.frames(), fact.first.site.frames()
    apart = len(fact.call.site.calls)
    elsewhere = not isinstance(fact.first, Shard)
    if elsewhere or len(theirs) <= apart or theirs[:apart] != ours[:apart]:
        return Declined("the model is sharded in another function; copy it before that by hand")
    if not fact.call.name.startswith("copy."):
        return Declined(f"the average is updated with shards; {_ALIKE}")
    code = Code.of(program.tree(fact.call.site.path))
    return copy_first(code, fact.call.site.node, theirs[apart][1])


def copy_first(code: Code, copy: ir.Node, first: ir.Node) -> Fix | Declined:
    """Move the statement of ``copy`` above that of ``first``, which begins the sharding."""
    statement = code.statement(copy)
    if not isinstance(statement, ir.Assign) or len(statement.targets) != 1:
        return Declined(
            f"`{code.short(statement)}` does not assign the copy to a variable; make the copy "
            "before the sharding by hand"
        )
    name = dotted(statement.targets[0])
    if name is None or _compared(code, copy, name):
        return Declined(f"the copy's tensors may be used with shards; {_ALIKE}")
    return add_before(code, copy, first)


def _compared(code: Code, copy: ir.Node, name: str) -> bool:
    """True if the copy's parameters or state are listed anywhere, or the copy is an argument."""
    last = name.rpartition(".")[2]
    inside = set(ir.walk(copy))
    used = [
        node.value
        for node in ir.walk(code.module)
        if (isinstance(node, ir.Attribute) and node.attr in LISTING)
        or (isinstance(node, ir.Argument) and node not in inside)
    ]
    return any((dotted(value) or "").rpartition(".")[2] == last for value in used)
