"""tied-weights-in-different-groups: two layers share their weight, and one is its own unit."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import modules
from benchmarks.detection.mutators.only_root import sharding
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "tied-weights-in-different-groups"
TIED = (
    "{model}.tied_in = torch.nn.Embedding(4, 4)",
    "{model}.tied_out = torch.nn.Linear(4, 4, bias=False)",
    "{model}.tied_out.weight = {model}.tied_in.weight",
)
UNITS = {
    "first": (f"{MARK}{{shard}}({{model}}.tied_in)",),
    "second": (f"{MARK}{{shard}}({{model}}.tied_out)",),
    "both": ("{shard}({model}.tied_in)", f"{MARK}{{shard}}({{model}}.tied_out)"),
    "": ("{shard}([{model}.tied_in, {model}.tied_out])",),
}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    for module in modules(program):
        roots, children = sharding(program, module)
        if "FullyShardedDataParallel" in module.text or len(roots) != 1 or not children:
            continue
        statement = module.statement(roots[0])
        if children[0] not in module.block(statement).statements:
            continue
        names = {"model": module.source(roots[0].args[0]), "shard": ast.unparse(roots[0].func)}
        start = module.rows(children[0])[0]
        for kind in (*random.sample(["first", "second", "both"], 2), ""):
            lines = (line.format(**names) for line in (*TIED, *UNITS[kind]))
            text = "".join(f"{module.indent(statement)}{line}\n" for line in lines)
            made = module.edited([(start, start, text)], imports="import torch")
            rule = RULE if kind else ""
            yield mutant(program, rule, f"{kind or 'none'} alone", {module.path: made})
