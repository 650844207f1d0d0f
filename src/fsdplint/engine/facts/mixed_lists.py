"""Lists of sharded and ignored parameters together, given to what takes all in one operation."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine.events import BuildOptimizer, Shard, Trace
from fsdplint.engine.facts.coverage import is_frozen
from fsdplint.engine.facts.sharding import sharding_of
from fsdplint.engine.program import Program
from fsdplint.engine.site import Site
from fsdplint.engine.values import Const, Object, Parameters, Value, contained, resolved
from fsdplint.knowledge.calls import Generation

_CLIPPING = ("torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad_norm")
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
    """Optimizers and clipping that fail on a mixture of DTensors and plain tensors."""
    for trace in program.traces:
        for shard in trace.of(Shard):
            if shard.generation is Generation.FSDP2 and _ignores(trace, shard):
                yield from _takers(program, trace, shard)


def _ignores(trace: Trace, shard: Shard) -> bool:
    """Whether the call surely leaves out parameters that are trained."""
    given = shard.keywords.get("ignored_params")
    if given is None or any(guard.progress for guard in shard.site.guards):
        return False
    for item in contained(given):
        named = isinstance(item, Parameters) and not item.filtered
        module = item.module if named and isinstance(item, Parameters) else None
        if isinstance(item, Object) and item.step in (".weight", ".bias"):
            module = item.parent
        if module is None or module is shard.module or sharding_of(trace, module) is None:
            continue
        inner = [s.module for s in trace.of(Shard) if s.module is not shard.module]
        apart = any(unit is module or unit in module.ancestors() for unit in inner)
        if not apart and not is_frozen(trace, module):
            return True
    return False


def _takers(program: Program, trace: Trace, shard: Shard) -> Iterator[MixedList]:
    for build in trace.of(BuildOptimizer):
        option = next((o for o in _OPTIONS if _is_on(build.optimizer.keywords.get(o))), "")
        given = (*build.optimizer.args, build.optimizer.keywords.get("params"))[0]
        single = given is not None and isinstance(resolved(given), Parameters)
        whole = len(build.captures) == 1 and _is_whole(build.captures[0], shard)
        if option and single and whole and program.together(build.site, shard.site):
            yield MixedList(build.site, shard, option)
    for call in trace.calls(*_CLIPPING):
        taken = call.argument(0, "parameters")
        whole = isinstance(taken, Parameters) and _is_whole(taken, shard)
        if whole and program.together(call.site, shard.site):
            yield MixedList(call.site, shard, "")


def _is_whole(taken: Parameters, shard: Shard) -> bool:
    return taken.module is shard.module and not taken.filtered and taken.time > shard.time


def _is_on(value: Value | None) -> bool:
    found = None if value is None else resolved(value)
    return isinstance(found, Const) and found.value is True
