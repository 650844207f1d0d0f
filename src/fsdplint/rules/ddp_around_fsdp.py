"""Models to which two incompatible kinds of data parallelism are applied."""

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
    summary="two incompatible kinds of data parallelism are applied to one model",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
)


# Arguments of FSDP1 and DDP that exclude parameters.
_IGNORED = frozenset({"ignored_modules", "ignored_states", "ignored_params"})


@dataclass(frozen=True, slots=True)
class Mixture:
    """A model passed to ``outer`` that is a unit of another kind, or contains one.

    Attributes:
        outer: what is applied last: "DDP", "replicate", "FSDP1" or "FSDP2".
        inner: what was applied to the model, or to parts of it, before.
        declared: the code that declares it, if no call shows it.
    """

    outer: str
    site: Site
    inner: str
    inner_site: Site
    declared: Declared | None = None


def mixtures(program: Program) -> Iterator[Mixture]:
    """Yield models that are sharded or replicated twice, in incompatible ways."""
    for trace in program.traces:
        for found in (*_around_units(trace), *_after_replicate(trace), *_of_generations(trace)):
            one, other = found.site, found.inner_site
            # Code under an option is an alternative to the rest, whatever the option's name.
            alternatives = exclude_each_other(one, other) or program.apart(one, other)
            if not alternatives and program.together(one, other):
                yield found


def _around_units(trace: Trace) -> Iterator[Mixture]:
    """Yield DDP around a model with units, and ``replicate`` of a unit."""
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
    """Yield FSDP1 around FSDP2's units, and FSDP2 on an FSDP1 unit itself."""
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
            f"`{text}` is applied to a model that {_known(program, fact)}: {_harm(fact)}",
            f"`{outer}` on top of `{inner}`",
            (
                program.evidence(fact.inner_site, _inner_note(fact)),
                *program.conditions(fact.inner_site, fact.site),
            ),
            partial(_fix, program, fact),
        )


def _known(program: Program, fact: Mixture) -> str:
    if fact.declared is not None:
        return f"is {as_unit(program, fact.declared, fact.site)}"
    verb = "replicates" if fact.inner == "replicate" else "shards"
    return f"`{_NAMES[fact.inner]}` {verb} {program.where(fact.inner_site, fact.site)}"


def _inner_note(fact: Mixture) -> str:
    if fact.declared is not None:
        return "declares that the model is sharded"
    if fact.inner == "replicate":
        return "replicates the model"
    return "shards the model or a part"


def _harm(fact: Mixture) -> str:
    if fact.outer == "DDP":
        return "DDP cannot handle shards, so training crashes"
    return "the two are incompatible, so training crashes"


def _fix(program: Program, fact: Mixture) -> Fix | Declined:
    if fact.outer != "DDP":
        return Declined("either of the two may be the intended one; remove the other by hand")
    return unwrap(Code.of(program.tree(fact.site.path)), fact.site.node)


@builder
def unwrap(code: Code, call: ir.Node) -> Fix:
    """Delete ``model = DDP(model)``, and replace ``DDP(model)`` elsewhere by ``model``."""
    given = call.args[0] if isinstance(call, ir.Call) and call.args else None
    if not isinstance(call, ir.Call) or given is None or given.star:
        raise NoFixError(
            f"`{code.short(call)}` does not show the model as its first argument; remove the "
            "wrapper by hand"
        )
    if code.comments(call.start, call.end):
        raise NoFixError("the call contains a comment; remove the wrapper by hand")
    model, statement = code.slice(given.value), code.statement(call)
    targets = statement.targets if isinstance(statement, ir.Assign) else ()
    same = [code.slice(target) for target in targets] == [model]
    if same and code.parent(call) is statement and code.alone(statement):
        edit = code.delete_lines(*code.extent(statement))
    else:
        edit = code.edit(call.start, call.end, model)
    callee = dotted(call.func)
    dropped = orphans(code, callee.split(".")[0], [edit]) if callee else []
    title = f"remove `{code.slice(call.func)}` around `{model}`"
    return Fix(title, Safety.UNSAFE, (edit, *dropped))
