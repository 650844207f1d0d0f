"""Distributed samplers whose seed differs between ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.samplers import distributed_samplers
from fsdplint.engine.interpreter.events import Call, Sharding
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import Const, Object, Taint, contained, taint_of
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity, Span
from fsdplint.fixes.arguments import argument_of, set_argument
from fsdplint.fixes.code import Code, Declined
from fsdplint.knowledge.suspicious_words import means_rank
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD803",
    summary="the seed of a distributed sampler differs between ranks",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="one public repository made this mistake and has fixed it.",
)

# Source: torch.utils.data.DistributedSampler, torch 2.4 to 2.15: (dataset, num_replicas, rank,
# shuffle, seed, drop_last).
_REPLICAS, _SHUFFLE, _SEED = 1, 3, 4
_UNCLEAR = "the intended common seed is unclear; pass the same seed on every rank by hand"


@dataclass(frozen=True, slots=True)
class OwnSeed:
    """A sampler whose seed contains the rank or differs between processes.

    Attributes:
        site: where it is created.
        position: the position of the seed, -1 for a derived class.
        made_up: the seed differs between processes without the rank.
    """

    site: Site
    position: int
    made_up: bool
    shard: Sharding


def own_seeds(program: Program) -> Iterator[OwnSeed]:
    """Yield samplers that divide data that each rank shuffles differently."""
    for trace in program.traces:
        shard = next(iter(trace.units()), None)
        if shard is None:
            continue
        for call, sampler in distributed_samplers(trace):
            taint = _taint(call, sampler)
            own = bool(taint & (Taint.RANK | Taint.OWN))
            assert sampler.site is not None
            if own and _divides(call) and program.together(sampler.site, shard.site):
                position = _SEED if call.site.node is sampler.site.node else -1
                yield OwnSeed(sampler.site, position, not taint & Taint.RANK, shard)


def _taint(call: Call, sampler: Object) -> Taint:
    """Return the taint of the seed: of the argument, unless the attribute is set later."""
    seed, later = call.argument(_SEED, "seed"), sampler.attrs.get("seed")
    if seed is None or (later is not None and not taint_of(*contained(later))):
        return Taint.NONE
    return taint_of(*contained(seed))


def _divides(sampler: Call) -> bool:
    """True if a sampler shuffles, and gives each of several ranks a part."""
    shuffle = sampler.argument(_SHUFFLE, "shuffle")
    replicas = sampler.argument(_REPLICAS, "num_replicas")
    alone = isinstance(replicas, Const) and replicas.value == 1
    shuffles = shuffle is None or (isinstance(shuffle, Const) and shuffle.value is True)
    return shuffles and not alone and not sampler.arguments.open


def reports(program: Program) -> Iterator[Report]:
    for fact in own_seeds(program):
        site = fact.site
        assert isinstance(site.node, ir.Call)
        given = argument_of(site.node, fact.position, "seed")
        node = site.node if given is None else given.value
        seed = f"seed{' of' * (given is None)} `{program.text(site.path, node)}`"
        why = "differs between processes" if fact.made_up else "contains the rank"
        yield Report(
            Span(site.path, node.start, node.end),
            f"the {seed} {why}, so every rank shuffles the data differently: in each epoch, some "
            "samples are used several times and others never",
            "differs between ranks",
            (
                program.evidence(fact.shard.site, "model is sharded here"),
                *program.conditions(site, fact.shard.site),
            ),
            partial(_fix, program, fact),
        )


def _fix(program: Program, fact: OwnSeed) -> Fix | Declined:
    site = fact.site
    code, call = Code.of(program.tree(site.path)), site.node
    assert isinstance(call, ir.Call)
    given = argument_of(call, fact.position, "seed")
    if given is None or not isinstance(given.value, ir.BinOp) or given.value.op != "Add":
        return Declined(_UNCLEAR)
    sides = given.value.left, given.value.right
    common = [each for each in sides if not means_rank(code.slice(each))]
    if len(common) != 1:
        return Declined(_UNCLEAR)
    return set_argument(code, call, fact.position, "seed", code.slice(common[0]), Safety.UNSAFE)
