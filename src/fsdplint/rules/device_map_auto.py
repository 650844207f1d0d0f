"""Models that Transformers spreads over all GPUs of a node before they are sharded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.weights import is_loaded, root
from fsdplint.engine.interpreter.events import Shard, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import Const, Object
from fsdplint.engine.program import Program
from fsdplint.finding import Safety, Severity
from fsdplint.fixes.arguments import drop_argument
from fsdplint.fixes.code import Code
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD110",
    summary="every rank loads the model with a device map for all GPUs of its node",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
)


# The maps that use all devices a process sees. Source: transformers 4.57 and 5.23
# (`_get_device_map`, accelerate's `infer_auto_device_map`).
_SPREADING = ("auto", "balanced", "balanced_low_0", "sequential")


@dataclass(frozen=True, slots=True)
class SpreadModel:
    """A model that is loaded with a device map for all devices and then sharded.

    Attributes:
        load: where it is loaded.
        map: the name of the device map.
        shard: the first call that shards it or a part of it.
    """

    load: Site
    map: str
    shard: Shard


def spread_models(program: Program) -> Iterator[SpreadModel]:
    """Yield models that Transformers loads with a device map and the same path shards."""
    for trace in program.traces:
        for model in dict.fromkeys(root(shard.module) for shard in trace.of(Shard)):
            fact = _spread(program, trace, model)
            if fact is not None:
                yield fact


def _spread(program: Program, trace: Trace, model: Object) -> SpreadModel | None:
    given = model.keywords.get("device_map")
    if not isinstance(given, Const) or given.value not in _SPREADING or model.site is None:
        return None
    if not is_loaded(model):
        return None
    shards = [shard for shard in trace.of(Shard) if root(shard.module) is model]
    known = [shard for shard in shards if program.together(model.site, shard.site)]
    return SpreadModel(model.site, str(given.value), known[0]) if known else None


def reports(program: Program) -> Iterator[Report]:
    for fact in spread_models(program):
        site, shard = fact.load, fact.shard.site
        assert isinstance(site.node, ir.Call)
        call = program.text(shard.path, fact.shard.call.func)
        yield Report(
            program.span(site),
            f'`device_map="{fact.map}"` lets every rank use all GPUs of the node: if the model '
            f"spans several, its forward crashes after `{call}` {program.where(shard, site)}; a "
            "small model is loaded to the same first GPU by all ranks",
            "uses all GPUs of the node",
            (program.evidence(shard, "model is sharded here"), *program.conditions(site, shard)),
            partial(
                drop_argument,
                Code.of(program.tree(site.path)),
                site.node,
                "device_map",
                "load without a device map",
            ),
        )
