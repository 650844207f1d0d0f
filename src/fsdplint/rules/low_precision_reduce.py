"""In which precision gradients are reduced."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.branches import on_every_path
from fsdplint.engine.facts.literal_arguments import argument
from fsdplint.engine.facts.policies import mixed_precisions
from fsdplint.engine.interpreter.events import BuildOptimizer, Shard, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import Object, Symbol
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.code import Code, NoFixError, builder
from fsdplint.fixes.imports import Imports
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.policies import (
    LOW_PRECISIONS,
    REDUCES_BY_PARAMETER,
)
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD403",
    summary="gradients are summed over ranks in low precision",
    severity=Severity.NOTE,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="it is a choice between precision and communication.",
)


_FIELDS = ("param_dtype", "reduce_dtype")  # of both classes, in this order


@dataclass(frozen=True, slots=True)
class LowReduction:
    """A policy that has the gradients of several ranks added up in a low precision.

    Attributes:
        place: the call that makes the policy.
    """

    shard: Shard
    place: Site
    dtype: str


def low_reductions(program: Program) -> Iterator[LowReduction]:
    """Calls whose policy has gradients added up in a low precision, whichever one they get."""
    found = on_every_path(
        (shard.call, _low(program, shard, policy))
        for trace in program.traces
        for shard in trace.of(Shard)
        for policy in mixed_precisions(shard)
    )
    for fact in found:
        if _is_written(program, fact.place) and not _only_infers(program, fact.shard):
            yield fact


def _low(program: Program, shard: Shard, policy: Object) -> LowReduction | None:
    """The low precision that a policy has gradients added up in, None if that is not known."""
    fields = {**dict(zip(_FIELDS, policy.args, strict=False)), **policy.keywords}
    reduced, made = fields.get("reduce_dtype"), policy.site
    if made is None or not isinstance(made.node, ir.Call):
        return None
    fsdp1 = shard.generation is Generation.FSDP1
    by_computation = fsdp1 or program.torch.concerns(upper=REDUCES_BY_PARAMETER)
    if by_computation and _is_none(argument(made.node, 1, "reduce_dtype")):
        reduced = fields.get("param_dtype")
    if not isinstance(reduced, Symbol):
        return None
    low = reduced.name in LOW_PRECISIONS
    return LowReduction(shard, made, reduced.name.rpartition(".")[2]) if low else None


def _is_none(given: ir.Argument | None) -> bool:
    """Whether a precision is written to be None, which means that of the computation."""
    value = None if given is None else given.value
    return isinstance(value, ir.Constant) and value.value is None


def _only_infers(program: Program, shard: Shard) -> bool:
    """Whether what a call shards is seen to run, and never to train."""
    traces = [t for t in program.traces if any(s.call is shard.call for s in t.of(Shard))]
    traces += program.method_traces_with(shard.call)
    return any(map(_runs, traces)) and not any(map(_trains, traces))


def _runs(trace: Trace) -> bool:
    return bool(trace.calls("forward")) or any(name == "generate" for _, name in trace.called)


def _trains(trace: Trace) -> bool:
    """Whether a path has, or may have, a backward pass."""
    called = {name.rpartition(".")[2] for _, name in trace.called}
    # Who gets a module before it is sharded changes the module, and cannot train what is sharded.
    handed_on = any(
        shard.module in escape.objects and escape.time > shard.time
        for shard in trace.of(Shard)
        for escape in trace.escapes
    )
    known = not called.isdisjoint(("backward", "grad")) or bool(trace.of(BuildOptimizer))
    return known or handed_on or not trace.complete


def _is_written(program: Program, made: Site) -> bool:
    """Whether the precision is named where a policy is made, or where functions around are called.

    What a function gives back may be another one for another setting.
    """
    path, given, calls = made.path, argument(made.node, 1, _FIELDS[1]), list(made.calls)
    if _is_none(given):  # which says what is meant only beside the other precision
        beside = argument(made.node, 0, _FIELDS[0])
        dtype = None if beside is None else program.tree(made.path).meaning(beside.value)
        return isinstance(dtype, ir.Attribute)
    while given is not None:
        tree = program.tree(path)
        meant = tree.meaning(given.value)
        if not isinstance(meant, ir.Name) or not tree.is_parameter(meant) or not calls:
            bound = tree.assigned(meant) if isinstance(meant, ir.Name) else []
            return all(isinstance(each, (ir.Name, ir.Attribute)) for each in (meant, *bound))
        names = [each.name for each in tree.function(meant).parameters]  # type: ignore[union-attr]  # it has the parameter
        path, call = calls.pop()
        given = argument(call, names.index(meant.id) - (names[0] == "self"), meant.id)
    return True


def reports(program: Program) -> Iterator[Report]:
    for fact in low_reductions(program):
        site = fact.shard.site
        yield Report(
            program.span(fact.place),
            f"`{program.text(site.path, fact.shard.call.func)}` "
            f"{program.where(site, fact.place)} sums gradients over ranks in {fact.dtype}: "
            "the rounded sum loses small contributions",
            "rounds the gradients",
            (program.evidence(site, "passed here"),),
            partial(
                reduce_in_full,
                Code.of(program.tree(fact.place.path)),
                fact.place.node,
            ),
        )


_KEYWORD = "reduce_dtype"


@builder
def reduce_in_full(code: Code, made: ir.Node) -> Fix:
    """``reduce_dtype=torch.bfloat16`` to ``reduce_dtype=torch.float32``."""
    if not isinstance(made, ir.Call) or any(argument.star for argument in made.args):
        raise NoFixError(
            "the fields of the policy are set elsewhere; set `reduce_dtype=torch.float32` there"
        )
    imports = Imports(code, made)
    torch = imports.bound("torch")
    dtype = imports.name("torch", "float32") if torch is None else f"{torch}.float32"
    plain = [argument for argument in made.args if argument.keyword is None]
    given = [argument for argument in made.args if argument.keyword == _KEYWORD] or plain[1:2]
    if not given:
        raise NoFixError("the dtype is chosen elsewhere; set `reduce_dtype=torch.float32` by hand")
    value = given[0].value
    edits = (code.edit(value.start, value.end, dtype), *imports.edits())
    title = "reduce the gradients in float32"
    return Fix(title, Safety.UNSAFE, edits)
