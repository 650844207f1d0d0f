"""Lists of sharded and ignored parameters together, given to what takes all in one operation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.coverage import is_frozen
from fsdplint.engine.facts.layers import with_parameters
from fsdplint.engine.facts.sharding import left_out
from fsdplint.engine.facts.weights import related
from fsdplint.engine.interpreter.events import BuildOptimizer, Shard, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import (
    Const,
    Object,
    Parameters,
    Value,
    followed,
    must_be,
)
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.knowledge.calls import CASTS, Generation
from fsdplint.knowledge.collectives import CLIPPING
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD316",
    summary="one fused operation gets sharded parameters together with ignored ones",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
)


_OPTIONS = ("foreach", "fused")


@dataclass(frozen=True, slots=True)
class MixedList:
    """The call at ``site`` gets the DTensors that ``shard`` makes and plain tensors it ignores.

    Attributes:
        option: the keyword that has an optimizer take all at once, "" for clipping.
    """

    site: Site
    shard: Shard
    option: str


def mixed_lists(program: Program) -> Iterator[MixedList]:
    """Yield optimizers and clipping that fail on a mixture of DTensors and plain tensors."""
    for trace in program.traces:
        for shard in trace.of(Shard):
            ignored = _ignored(trace, shard) if shard.generation is Generation.FSDP2 else []
            if ignored:
                alike = not all(_may_have_another_dtype(trace, shard, each) for each in ignored)
                yield from _takers(program, trace, shard, alike)


def _ignored(trace: Trace, shard: Shard) -> list[Object]:
    """Return the modules whose parameters the call surely leaves out, though they are trained."""
    found: list[Object] = []
    if any(guard.progress for guard in shard.site.guards):
        return found
    for module in left_out(shard):
        if module is None or shard.module not in module.ancestors():
            continue
        inner = [s.module for s in trace.of(Shard) if s.module is not shard.module]
        apart = any(unit is module or unit in module.ancestors() for unit in inner)
        if not apart and not is_frozen(trace, module):
            found.append(module)
    return found


def _may_have_another_dtype(trace: Trace, shard: Shard, module: Object) -> bool:
    """True if a module is created with a dtype, or cast alone.

    Optimizers take the parameters of each dtype separately.
    """
    if any("dtype" in layer.keywords for layer in with_parameters(module, ())):
        return True
    cast = (call.receiver for call in trace.calls(*CASTS))
    parts = (each for each in cast if isinstance(each, Object) and shard.module in each.ancestors())
    return any(related(each, module) for each in parts)


def _takers(program: Program, trace: Trace, shard: Shard, alike: bool) -> Iterator[MixedList]:
    """Yield the operations that fail.

    Args:
        alike: whether the ignored parameters have the dtype of the others.
    """
    for build in trace.of(BuildOptimizer) if alike else ():
        option = next((o for o in _OPTIONS if _is_on(build.optimizer.keywords.get(o))), "")
        given = (*build.optimizer.args, build.optimizer.keywords.get("params"))[0]
        single = isinstance(followed(given), Parameters)
        whole = len(build.captures) == 1 and _is_whole(build.captures[0], shard)
        if option and single and whole and program.together(build.site, shard.site):
            yield MixedList(build.site, shard, option)
    for call in trace.calls(*CLIPPING):
        taken = call.argument(0, "parameters")
        whole = isinstance(taken, Parameters) and _is_whole(taken, shard)
        if whole and program.together(call.site, shard.site):
            yield MixedList(call.site, shard, "")


def _is_whole(taken: Parameters, shard: Shard) -> bool:
    return taken.module is shard.module and not taken.filtered and taken.time > shard.time


def _is_on(value: Value | None) -> bool:
    found = must_be(value)
    return isinstance(found, Const) and found.value is True


def reports(program: Program) -> Iterator[Report]:
    for fact in mixed_lists(program):
        site, shard = fact.site, fact.shard.site
        what = f"with `{fact.option}=True` the step" if fact.option else "the clipping"
        yield Report(
            program.span(site),
            f"{what} crashes: it combines DTensors and plain tensors in one operation, since "
            f"`{program.text(shard.path, fact.shard.call.func)}` {program.where(shard, site)} "
            "ignores some parameters",
            "raises RuntimeError",
            (
                program.evidence(shard, "some parameters stay plain tensors"),
                *program.conditions(site, shard),
            ),
            partial(_fix, program, fact),
        )


def _fix(program: Program, fact: MixedList) -> Fix | Declined:
    code = Code.of(program.tree(fact.site.path))
    if not fact.option:
        return Declined(
            "the gradients need one common norm; compute it by hand, then "
            "scale DTensors and plain tensors separately"
        )
    # A run that does not shard has no reason to be slower.
    apart = program.sometimes_without(fact.site, fact.shard.site)
    safety = Safety.UNSAFE if apart else Safety.SAFE
    return one_by_one(code, fact.site.node, fact.option, safety)


@builder
def one_by_one(code: Code, build: ir.Node, option: str, safety: Safety) -> Fix:
    """``foreach=True`` or ``fused=True`` to ``foreach=False``."""
    for argument in build.args if isinstance(build, ir.Call) else ():
        if argument.keyword == option and isinstance(argument.value, ir.Constant):
            edit = code.edit(argument.start, argument.end, "foreach=False")
            return Fix("set `foreach=False`", safety, (edit,))
    raise NoFixError(
        f"`{option}` is not passed to the optimizer directly; set it to `False` by hand"
    )
