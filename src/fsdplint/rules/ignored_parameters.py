"""Parameters that a sharding call ignores although an optimizer trains them.

A parameter counts if the call surely names it and no other unit holds it. Names instead of
parameters have no effect.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine.facts.coverage import is_frozen, is_replicated, is_synchronized
from fsdplint.engine.facts.sharding import left_out, runs_alone
from fsdplint.engine.interpreter.events import BuildOptimizer, Shard, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import Const, Object, contained
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.arguments import argument_of, drop_argument
from fsdplint.fixes.code import Code, Declined
from fsdplint.knowledge.calls import Generation
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD216",
    summary="a sharding call ignores trained parameters, or gets names instead of parameters",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    clause="coverage",
    preview="no public code examined so far makes this mistake.",
)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Parameters that ``shard`` ignores because of its argument ``keyword``.

    Attributes:
        trained: the optimizer that trains them, and their paths in the model; None if the argument
            has names instead of parameters.
    """

    shard: Shard
    keyword: str
    trained: tuple[Site, tuple[str, ...]] | None


def left_out_parameters(program: Program) -> Iterator[LeftOut]:
    for trace in program.traces:
        if runs_alone(trace):
            continue
        for shard in trace.of(Shard):
            keyword = next((name for name in shard.keywords if name.startswith("ignored")), "")
            if keyword and shard.generation is Generation.FSDP2 and _has_names(shard, keyword):
                yield LeftOut(shard, keyword, None)
            elif keyword and (trained := _trained(program, trace, shard)):
                yield LeftOut(shard, keyword, trained)


def _has_names(shard: Shard, keyword: str) -> bool:
    items = contained(shard.keywords[keyword])
    return any(isinstance(item, Const) and isinstance(item.value, str) for item in items)


def _trained(program: Program, trace: Trace, shard: Shard) -> tuple[Site, tuple[str, ...]] | None:
    """Return the optimizer that trains surely ignored parameters, and their paths in the model."""
    known = [part for part in left_out(shard) if part is not None]
    spared = [part for part in known if _is_apart(trace, shard, part)]
    if not spared or is_synchronized(program, trace):
        return None
    for build in trace.of(BuildOptimizer):
        given = [item.module for item in build.optimizer.captures if not item.filtered]
        names = [
            part.path().lstrip(".")
            for part in spared
            if any(module in (part, *part.ancestors()) for module in given)
        ]
        if names and program.together(build.site, shard.site):
            return build.site, tuple(names)
    return None


def _is_apart(trace: Trace, shard: Shard, part: Object) -> bool:
    """True if nothing reduces the gradients of an ignored part."""
    whole = (part, *part.ancestors())
    if shard.module not in whole[1:] or is_frozen(trace, part) or is_replicated(trace, part):
        return False
    if any(event.objects & {*whole} for event in trace.escapes):
        return False
    return all(part in left_out(unit) for unit in trace.of(Shard) if _holds(unit, part))


def _holds(unit: Shard, part: Object) -> bool:
    """True if a call may shard a part, or a module in it."""
    around = unit.module is part or unit.module in part.ancestors()
    return around or part in unit.module.ancestors()


def reports(program: Program) -> Iterator[Report]:
    for fact in left_out_parameters(program):
        call = fact.shard.site
        given = argument_of(fact.shard.call, -1, fact.keyword)
        at = call if given is None else Site(call.path, given.value)
        fix = partial(_fix, program, fact)
        if fact.trained is None:
            message = (
                f"`{fact.keyword}` takes parameters, not their names: nothing is ignored, and all "
                "parameters are sharded"
            )
            label = "names have no effect"
            yield Report(program.span(at), message, label, program.conditions(call), fix)
            continue
        training, names = fact.trained
        listed = ", ".join(f"`{name}`" for name in names)
        yield Report(
            program.span(at),
            f"`{fact.keyword}` excludes parameters that the optimizer trains ({listed}): their "
            "gradients are never reduced, so each rank trains different weights",
            "each rank trains a separate copy",
            (
                program.evidence(training, "trains all parameters of the model"),
                *program.conditions(call, training),
            ),
            fix,
        )


def _fix(program: Program, fact: LeftOut) -> Fix | Declined:
    code = Code.of(program.tree(fact.shard.site.path))
    title = f"remove `{fact.keyword}`"
    if fact.trained is not None:
        title += " so that FSDP shards these parameters"
    return drop_argument(code, fact.shard.call, fact.keyword, title)
