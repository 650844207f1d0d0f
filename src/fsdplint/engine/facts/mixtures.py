"""Models that two ways of data parallelism take at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine.events import Shard, Trace
from fsdplint.engine.facts.sharding import exclude_each_other
from fsdplint.engine.program import Program
from fsdplint.engine.site import Site
from fsdplint.engine.values import Object
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.replicas import DDP, REPLICATE

# Of FSDP1 and DDP: parameters that are left alone.
_IGNORED = frozenset({"ignored_modules", "ignored_states", "ignored_params"})


@dataclass(frozen=True, slots=True)
class Mixture:
    """A model given to ``outer`` that is, or holds, units of another kind.

    Attributes:
        outer: what the model is given to last: "DDP", "replicate", "FSDP1" or "FSDP2".
        inner: what had it, or parts of it, before.
    """

    outer: str
    site: Site
    inner: str
    inner_site: Site


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
        units = [s for s in trace.of(Shard) if s.time < call.time and _sharded(s)]
        if not isinstance(module, Object) or _IGNORED & call.arguments.keywords.keys():
            continue
        replicates = call.name in REPLICATE
        held = [s for s in units if _holds(module, s) and (s.module is module or not replicates)]
        if held:
            name = "replicate" if replicates else "DDP"
            yield Mixture(name, call.site, held[-1].generation.value, held[-1].site)


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


def _holds(module: Object, shard: Shard) -> bool:
    return shard.module is module or module in shard.module.ancestors()


def _sharded(shard: Shard) -> bool:
    return shard.generation is Generation.FSDP2 or shard.cuts_flat
