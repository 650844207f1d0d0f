"""ddp-around-fsdp: what shards the model is put inside or around another kind of parallelism."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import modules
from benchmarks.detection.mutators.only_root import sharding
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "ddp-around-fsdp"
WRAPPERS = {
    "DDP": "torch.nn.parallel.DistributedDataParallel",
    "FSDP1": "torch.distributed.fsdp.FullyShardedDataParallel",
}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    del random  # nothing is drawn
    for module in modules(program):
        roots, _ = sharding(program, module)
        for root in [] if "FullyShardedDataParallel" in module.text else roots:
            statement, model = module.statement(root), module.source(root.args[0])
            if not isinstance(statement, ast.Expr):
                continue
            end = module.rows(statement)[1]
            for kind, wrapper in WRAPPERS.items():
                text = f"{module.indent(statement)}wrapped = {MARK}{wrapper}({model})\n"
                made = module.edited([(end, end, text)], imports="import torch")
                yield mutant(program, RULE, f"{kind} around it", {module.path: made})
