"""Numbers reduced from DTensors and read before the parts of all ranks are combined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.literal_arguments import called
from fsdplint.engine.facts.sharding import as_unit, unit_of
from fsdplint.engine.interpreter.events import Read, Shard, Sharding, Trace
from fsdplint.engine.interpreter.shape import exits, exits_cleanly
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.program import Program
from fsdplint.finding import Edit, Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.tensors import WHOLE_SINCE
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD305",
    summary="a reduction of a DTensor is read before it is combined over ranks",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    clause="reductions",
)


@dataclass(frozen=True, slots=True)
class LocalRead:
    """A number of which ``read`` gets this rank's part; it was reduced at ``reduced``."""

    read: Read
    reduced: Site
    shard: Sharding


def local_reads(program: Program) -> Iterator[LocalRead]:
    """Reads of reductions of FSDP2's tensors that no later code may combine over the ranks."""
    for trace in program.traces:
        last = max(trace.combined, default=0)
        for read in trace.reads:
            fact = None if read.time < last else _local(program, trace, read)
            if fact is not None:
                yield fact


def _local(program: Program, trace: Trace, read: Read) -> LocalRead | None:
    tensor = read.tensor
    shard = unit_of(trace, tensor.module)
    flat = unit_of(trace, tensor.module, Generation.FSDP1)
    if shard is None or flat is not None or shard.time > tensor.time or tensor.reduced is None:
        return None
    whole_since = WHOLE_SINCE.get(tensor.partial)
    if whole_since is not None and program.torch.is_from(whole_since):
        return None
    if not program.together(read.site, shard.site) or _asked_by_all(program, read):
        return None
    return LocalRead(read, tensor.reduced, shard)


def _asked_by_all(program: Program, read: Read) -> bool:
    """Whether the run goes on only if the parts of all ranks allow it, as the whole would.

    So it is with ``assert x.all()`` and ``if x.any(): raise``, where every rank asks.
    """
    kind, statement = read.tensor.partial, program.tree(read.site.path).statement(read.site.node)
    if kind not in ("any", "all") or any(guard.divergent for guard in read.site.guards):
        return False
    if isinstance(statement, ir.Assert):
        return (kind == "any") is isinstance(statement.test, ir.Not)
    fails = partial(_fails, program, read.site.path)
    if isinstance(statement, ir.If) and fails(statement.body):
        return (kind == "all") is isinstance(statement.test, ir.Not)
    if isinstance(statement, ir.If) and fails(statement.orelse):
        return (kind == "any") is isinstance(statement.test, ir.Not)
    return False


Functions = frozenset[ir.Function]


def _fails(
    program: Program, path: str, block: Sequence[ir.Stmt], inside: Functions = frozenset()
) -> bool:
    """Whether a block surely ends the run with an error, or calls what does.

    It is that of a function which those of ``inside`` call.
    """
    for statement in block:
        if _is_error(program, path, statement, inside):
            return True
        if any(isinstance(node, ir.Return) for node in ir.walk(statement)):
            return False
    return False


def _is_error(program: Program, path: str, statement: ir.Stmt, inside: Functions) -> bool:
    if isinstance(statement, ir.Raise) or (exits(statement) and not exits_cleanly([statement])):
        return True
    if isinstance(statement, ir.With):
        return _fails(program, path, statement.body, inside)
    if isinstance(statement, ir.Try):
        tried = (statement.body, *(handler.body for handler in statement.handlers))
        fails = partial(_fails, program, path, inside=inside)
        return fails(statement.final) or all(map(fails, tried))
    found = called(program, path, statement)
    if found is None or found[1] in inside:
        return False
    return _fails(program, found[0], found[1].body, inside | {found[1]})


def reports(program: Program) -> Iterator[Report]:
    for fact in local_reads(program):
        site, shard = fact.read.site, fact.shard
        what = program.text(fact.reduced.path, fact.reduced.node)
        read = program.text(site.path, site.node)
        of = "" if read == what else f" (`{what}`)"
        yield Report(
            program.span(site),
            f"`{read}` reads a value reduced from this rank's shards only{of}: every rank gets "
            f"another number, since {_reduced(program, shard, site)}",
            "differs between ranks",
            (
                program.evidence(fact.reduced, "reduced over the local shard"),
                program.evidence(shard.site, "the tensors become DTensor shards"),
                *program.conditions(site, shard.site),
            ),
            partial(_fix, program, fact),
        )


def _reduced(program: Program, shard: Sharding, at: Site) -> str:
    if isinstance(shard, Shard):
        sharder = program.text(shard.site.path, shard.call.func)
        return f"`{sharder}` {program.where(shard.site, at)} shards the tensors"
    return f"the tensors belong to {as_unit(program, shard, at)}"


def _fix(program: Program, fact: LocalRead) -> Fix | Declined:
    site = fact.read.site
    if any(program.is_rank_test(guard) for guard in site.guards):
        return Declined(
            "only some ranks get here, and `full_tensor` needs all ranks; call it before the test"
        )
    if (fact.reduced.path, fact.reduced.calls) != (site.path, site.calls):
        return Declined(
            "the value is reduced in one function and read in another; "
            "call `full_tensor()` before it is read"
        )
    if program.sometimes_without(site, fact.shard.site):
        return Declined("the model is not always sharded, and a plain tensor has no `full_tensor`")
    return combine(Code.of(program.tree(site.path)), site.node)


_WHOLE = ".full_tensor()"
# Expressions that an attribute can follow without parentheses.
_PRIMARY = (ir.Name, ir.Attribute, ir.Call, ir.Subscript)


@builder
def combine(code: Code, read: ir.Node) -> Fix:
    """Combines the number before it is read.

    Args:
        read: the call of ``item``, ``float`` or the like, or the expression that is read itself.
    """
    edits = tuple(_edits(code, read))
    return Fix("call `full_tensor()` to combine the values of all ranks", Safety.UNSAFE, edits)


def _edits(code: Code, read: ir.Node) -> Iterator[Edit]:
    method = read.func if isinstance(read, ir.Call) else None
    if isinstance(method, ir.Attribute) and method.attr == "item":
        dot = code.text.rindex(".", method.value.end, method.end)
        yield code.edit(dot, dot, _WHOLE)
        return
    if isinstance(read, ir.Call) and _reads_argument(read):
        read = read.args[0].value
    elif isinstance(read, ir.Call) and _is_asked(read):
        raise NoFixError(
            f"`{code.short(read)}` reads several values at once; "
            "call `full_tensor()` on each by hand"
        )
    if isinstance(read, _PRIMARY):
        yield code.edit(read.end, read.end, _WHOLE)
    else:
        yield code.edit(read.start, read.start, "(")
        yield code.edit(read.end, read.end, f"){_WHOLE}")


def _reads_argument(call: ir.Call) -> bool:
    in_math = isinstance(call.func, ir.Attribute) and getattr(call.func.value, "id", "") == "math"
    plain = isinstance(call.func, ir.Name) and call.func.id in ("float", "int", "bool")
    return (in_math or plain) and len(call.args) >= 1


def _is_asked(call: ir.Call) -> bool:
    return isinstance(call.func, ir.Name) and call.func.id in ("any", "all")
