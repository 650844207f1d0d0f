"""Models that two ways of data parallelism take at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.sharding import as_unit, exclude_each_other
from fsdplint.engine.interpreter.events import Declared, Shard, Sharding, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import Object
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.fixes.imports import orphans
from fsdplint.fixes.names import dotted
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.collectives import DDP, REPLICATE
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD211",
    summary="a model is given to two ways of data parallelism that exclude each other",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
)


# Of FSDP1 and DDP: parameters that are left alone.
_IGNORED = frozenset({"ignored_modules", "ignored_states", "ignored_params"})


@dataclass(frozen=True, slots=True)
class Mixture:
    """A model given to ``outer`` that is, or holds, units of another kind.

    Attributes:
        outer: what the model is given to last: "DDP", "replicate", "FSDP1" or "FSDP2".
        inner: what had it, or parts of it, before.
        declared: what says so, where no call shows it.
    """

    outer: str
    site: Site
    inner: str
    inner_site: Site
    declared: Declared | None = None


def mixtures(program: Program) -> Iterator[Mixture]:
    """Models that are sharded or replicated twice, in ways that exclude each other."""
    for trace in program.traces:
        for found in (*_around_units(trace), *_after_replicate(trace), *_of_generations(trace)):
            one, other = found.site, found.inner_site
            # A way to train under an option of its own is an alternative, whatever it is called.
            alternatives = exclude_each_other(one, other) or program.apart(one, other)
            if not alternatives and program.together(one, other):
                yield found


def _around_units(trace: Trace) -> Iterator[Mixture]:
    """DDP around a model with units, and ``replicate`` of one."""
    for call in trace.calls(*DDP, *REPLICATE):
        module = call.argument(0, "module")
        units = [s for s in trace.units() if s.time < call.time and _sharded(s)]
        if not isinstance(module, Object) or _IGNORED & call.arguments.keywords.keys():
            continue
        replicates = call.name in REPLICATE
        held = [s for s in units if _holds(module, s) and (s.module is module or not replicates)]
        if held:
            name = "replicate" if replicates else "DDP"
            last = held[-1]
            said = last if isinstance(last, Declared) else None
            yield Mixture(name, call.site, last.generation.value, last.site, said)


def _after_replicate(trace: Trace) -> Iterator[Mixture]:
    for call in trace.calls(*REPLICATE):
        module = call.argument(0, "module")
        for shard in trace.of(Shard):
            if shard.module is module and shard.time > call.time:
                yield Mixture(shard.generation.value, shard.site, "replicate", call.site)


def _of_generations(trace: Trace) -> Iterator[Mixture]:
    """FSDP1 around FSDP2's units, and FSDP2 on an FSDP1 unit itself."""
    shards = trace.of(Shard)
    for index, outer in enumerate(shards):
        for inner in shards[:index]:
            if inner.generation is outer.generation or _IGNORED & outer.keywords.keys():
                continue
            one = inner.module is outer.module
            around = outer.generation is Generation.FSDP1 and _holds(outer.module, inner)
            if one or around:
                yield Mixture(
                    outer.generation.value, outer.site, inner.generation.value, inner.site
                )


def _holds(module: Object, shard: Sharding) -> bool:
    return shard.module is module or module in shard.module.ancestors()


def _sharded(shard: Sharding) -> bool:
    if isinstance(shard, Declared):  # a test may be for models that come here for another mode
        return shard.annotated and shard.generation is Generation.FSDP2
    return shard.generation is Generation.FSDP2 or shard.cuts_flat


_NAMES = {
    "DDP": "DistributedDataParallel",
    "FSDP1": "FullyShardedDataParallel",
    "FSDP2": "fully_shard",
    "replicate": "replicate",
}


def reports(program: Program) -> Iterator[Report]:
    for fact in mixtures(program):
        inner, outer = _NAMES[fact.inner], _NAMES[fact.outer]
        text = program.text(fact.site.path, fact.site.node)
        yield Report(
            program.span(fact.site),
            f"`{text}` is given a model{_known(program, fact)}: {_harm(fact)}",
            f"`{outer}` on top of `{inner}`",
            (
                program.evidence(fact.inner_site, f"`{inner}` has it, or a part of it"),
                *program.conditions(fact.inner_site, fact.site),
            ),
            partial(_fix, program, fact),
        )


def _known(program: Program, fact: Mixture) -> str:
    if fact.declared is not None:
        return f" that is {as_unit(program, fact.declared, fact.site)}"
    return f" that `{_NAMES[fact.inner]}` has {program.where(fact.inner_site, fact.site)}"


def _harm(fact: Mixture) -> str:
    if fact.outer == "DDP":
        return "DDP cannot work with shards; hybrid sharding is a mesh with two dimensions"
    return "the two exclude each other"


def _fix(program: Program, fact: Mixture) -> Fix | Declined:
    if fact.outer != "DDP":
        return Declined("which of the two is meant is not known")
    return unwrap(Code.of(program.tree(fact.site.path)), fact.site.node)


@builder
def unwrap(code: Code, call: ir.Node) -> Fix:
    """``model = DDP(model)`` goes, and ``DDP(model)`` elsewhere becomes ``model``."""
    given = call.args[0] if isinstance(call, ir.Call) and call.args else None
    if not isinstance(call, ir.Call) or given is None or given.star:
        raise NoFixError(f"`{code.short(call)}` does not name the model first")
    if code.comments(call.start, call.end):
        raise NoFixError("a comment stands inside the call")
    model, statement = code.slice(given.value), code.statement(call)
    targets = statement.targets if isinstance(statement, ir.Assign) else ()
    same = [code.slice(target) for target in targets] == [model]
    if same and code.parent(call) is statement and code.alone(statement):
        edit = code.delete_lines(*code.extent(statement))
    else:
        edit = code.edit(call.start, call.end, model)
    callee = dotted(call.func)
    dropped = orphans(code, callee.split(".")[0], [edit]) if callee else []
    title = f"leave `{model}` without `{code.slice(call.func)}`"
    return Fix(title, Safety.UNSAFE, (edit, *dropped))
