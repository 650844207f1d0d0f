"""Values reduced from DTensors and read before the parts of all ranks are combined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.literal_arguments import called
from fsdplint.engine.facts.sharding import as_state, unit_of
from fsdplint.engine.interpreter.events import Read, Sharding, Trace
from fsdplint.engine.interpreter.shape import exits, exits_cleanly
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import fresh
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.names import DTENSOR
from fsdplint.knowledge.tensors import WHOLE_SINCE
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD305",
    summary="a value reduced from a DTensor is read from the local shard only",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    clause="reductions",
)


@dataclass(frozen=True, slots=True)
class LocalRead:
    """A ``read`` that gets this rank's part of the value that ``reduced`` computes."""

    read: Read
    reduced: Site
    shard: Sharding


def local_reads(program: Program) -> Iterator[LocalRead]:
    """Yield reads of reductions of FSDP2's tensors that no later code combines over ranks."""
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
    """True if the program fails as soon as one rank's part is bad, as it would for the whole.

    Examples are ``assert x.all()`` and ``if x.any(): raise``, on every rank.
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
    """True if a block surely ends the program with an error.

    Args:
        inside: the functions whose calls lead to the block.
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
        of = "" if read == what else f" of `{what}`"
        yield Report(
            program.span(site),
            f"`{read}` reads the local shard's value{of}, not the global one (the model is "
            f"{as_state(program, shard, site)}): ranks get different values",
            "differs between ranks",
            (
                program.evidence(fact.reduced, "reduced over the local shard only"),
                program.evidence(shard.site, "DTensor shards from here on"),
                *program.conditions(site, shard.site),
            ),
            partial(_fix, program, fact),
        )


def _fix(program: Program, fact: LocalRead) -> Fix | Declined:
    site = fact.read.site
    if any(program.is_rank_test(guard) for guard in site.guards):
        return Declined(
            "only some ranks reach this line, and `full_tensor` waits for all; call it on every "
            "rank by hand"
        )
    if (fact.reduced.path, fact.reduced.calls) != (site.path, site.calls):
        return Declined(
            "the value is reduced in one function and read in another; call `full_tensor` by hand"
        )
    plain = program.sometimes_without(site, fact.shard.site)
    return combine(Code.of(program.tree(site.path)), site.node, may_be_plain=plain)


_WHOLE = ".full_tensor()"
# Expressions that an attribute can follow without parentheses.
_PRIMARY = (ir.Name, ir.Attribute, ir.Call, ir.Subscript)


@builder
def combine(code: Code, read: ir.Node, *, may_be_plain: bool = False) -> Fix:
    """Reduce the value over all ranks before it is read.

    Args:
        read: the call of ``item``, ``float`` or the like, or the expression that is read itself.
        may_be_plain: the model is not always sharded, and a plain tensor has no `full_tensor`.
    """
    start, end, is_primary = _value(code, read)
    edits = [code.edit(end, end, _WHOLE)]
    if may_be_plain:
        imports = Imports(code, read)
        name = fresh(code, read, "value")
        test = f"isinstance({name} := {code.text[start:end]}, "
        test += f"{imports.name(*DTENSOR.rsplit('.', 1))})"
        whole = code.edit(start, end, f"({name}{_WHOLE} if {test} else {name})")
        edits = [whole, *imports.edits()]
    elif not is_primary:
        edits = [code.edit(start, start, "("), code.edit(end, end, f"){_WHOLE}")]
    return Fix("reduce over all ranks with `full_tensor()` first", Safety.UNSAFE, tuple(edits))


def _value(code: Code, read: ir.Node) -> tuple[int, int, bool]:
    """Return the ends of the expression that is read, and whether an attribute can follow it."""
    method = read.func if isinstance(read, ir.Call) else None
    if isinstance(method, ir.Attribute) and method.attr == "item":
        return read.start, code.text.rindex(".", method.value.end, method.end), True
    if isinstance(read, ir.Call) and _reads_argument(read):
        read = read.args[0].value
    elif isinstance(read, ir.Call) and _is_asked(read):
        raise NoFixError(
            f"`{code.short(read)}` reads several values; call `full_tensor` on each by hand"
        )
    return read.start, read.end, isinstance(read, _PRIMARY)


def _reads_argument(call: ir.Call) -> bool:
    in_math = isinstance(call.func, ir.Attribute) and getattr(call.func.value, "id", "") == "math"
    plain = isinstance(call.func, ir.Name) and call.func.id in ("float", "int", "bool")
    return (in_math or plain) and len(call.args) >= 1


def _is_asked(call: ir.Call) -> bool:
    return isinstance(call.func, ir.Name) and call.func.id in ("any", "all")
