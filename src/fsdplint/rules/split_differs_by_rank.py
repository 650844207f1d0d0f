"""Random splits that differ between ranks, and that a distributed sampler then divides."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fsdplint.engine import ir
from fsdplint.engine.facts.samplers import distributed_samplers
from fsdplint.engine.interpreter.events import Call, Sharding, Trace
from fsdplint.engine.interpreter.state import is_const
from fsdplint.engine.interpreter.values import Object, Taint, contained, taint_of
from fsdplint.engine.program import Program
from fsdplint.engine.project.relevance import import_closure
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.arguments import put_argument
from fsdplint.fixes.code import Code, Declined, builder
from fsdplint.fixes.imports import Imports
from fsdplint.knowledge.data import RANDOM_SPLIT
from fsdplint.knowledge.initialisation import SEEDS
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD804",
    summary="`random_split` splits the data differently on every rank",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="three files of one public repository make this mistake.",
)

# Words in code that may set a seed in a way that is not analyzed.
_SEEDS = re.compile(r"seed|rng_state|default_generator", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class OwnSplit:
    """A random split, and the distributed sampler that divides a part of it.

    Attributes:
        seed: the last call before it that seeds the ranks differently, None if no seed is set.
    """

    split: Call
    sampler: Call
    seed: Call | None
    shard: Sharding


def own_splits(program: Program) -> Iterator[OwnSplit]:
    """Yield random splits without a generator, with a seed that differs or without a seed."""
    for trace in program.traces:
        shard = next(iter(trace.units()), None)
        if shard is None:
            continue
        for split in filter(_is_random, trace.calls(*RANDOM_SPLIT)):
            seeds = [each for each in trace.calls(*SEEDS) if each.time < split.time]
            seed = seeds[-1] if seeds else None
            sampler = _divided(trace, split)
            if sampler is None:
                continue
            differs = _mentions_no_seed(program, split) if seed is None else _is_of_rank(seed)
            if differs and program.together(split.site, shard.site):
                yield OwnSplit(split, sampler, seed, shard)


def _is_random(split: Call) -> bool:
    given = split.argument(2, "generator")
    return not split.arguments.open and (given is None or is_const(given, None))


def _is_of_rank(seed: Call) -> bool:
    return bool(taint_of(*seed.arguments.values()) & Taint.RANK)


def _mentions_no_seed(program: Program, split: Call) -> bool:
    """True if no file that the program imports mentions a seed, since an import may set one."""
    paths = {Path(path) for path, _ in split.site.frames()}
    files = {each for path in paths for each in import_closure(program.project, path)}
    return not any(_SEEDS.search(program.project.read(each) or "") for each in files | paths)


def _divided(trace: Trace, split: Call) -> Call | None:
    """Return the sampler that divides a part of a split among the ranks."""
    parts = split.result.elements.values() if isinstance(split.result, Object) else ()
    for call, _ in distributed_samplers(trace):
        dataset = call.argument(0, "dataset")
        if dataset is not None and any(each in parts for each in contained(dataset)):
            return call
    return None


def reports(program: Program) -> Iterator[Report]:
    for fact in own_splits(program):
        site, seed = fact.split.site, fact.seed
        assert isinstance(site.node, ir.Call)
        why = "no seed is set"
        if seed is not None:
            why = f"`{program.text(seed.site.path, seed.site.node)}` differs between ranks"
        yield Report(
            program.span(site),
            f"`{program.text(site.path, site.node.func)}` splits the data differently on every "
            f"rank ({why}): ranks train on samples that other ranks validate on",
            "different split on every rank",
            (
                *(
                    []
                    if seed is None
                    else [program.evidence(seed.site, "seed differs between ranks")]
                ),
                program.evidence(fact.sampler.site, "expects the same split on every rank"),
                program.evidence(fact.shard.site, "model is sharded here"),
                *program.conditions(site, fact.shard.site),
            ),
            partial(_fix, program, fact),
        )


def _fix(program: Program, fact: OwnSplit) -> Fix | Declined:
    site = fact.split.site
    assert isinstance(site.node, ir.Call)
    return split_by_seed(Code.of(program.tree(site.path)), site.node)


@builder
def split_by_seed(code: Code, call: ir.Call) -> Fix:
    """Give a split a generator with a fixed seed."""
    imports = Imports(code, call)
    generator = f"{imports.module('torch', 'torch')}.Generator().manual_seed(0)"
    edit = put_argument(code, call, "generator", generator)
    return Fix(
        "split with a generator that has a fixed seed", Safety.UNSAFE, (edit, *imports.edits())
    )
