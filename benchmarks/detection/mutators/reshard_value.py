"""reshard-after-forward-value: the argument looks like a boolean and is none."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import modules
from benchmarks.detection.mutators.only_root import sharding
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "reshard-after-forward-value"
VALUES = ('"True"', "1", "0", "torch.distributed.fsdp.ShardingStrategy.FULL_SHARD", "0.5")


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    for module in modules(program):
        roots, _ = sharding(program, module)
        for root in [] if "FullyShardedDataParallel" in module.text else roots:
            start, end = module.span(root)
            known = [k for k in root.keywords if k.arg == "reshard_after_forward"]
            for value in random.sample(VALUES, 2):
                text = f", reshard_after_forward={value}"
                edits = [(start, start, MARK), (end - 1, end - 1, text)]
                if known:
                    edits[1] = (*module.span(known[0].value), value)
                if module.text[end - 2] == ",":
                    continue
                made = module.edited(edits, imports="import torch")
                yield mutant(program, RULE, value, {module.path: made})
            statement = module.statement(root)
            if isinstance(statement, ast.Expr):
                after = module.rows(statement)[1]
                model = module.source(root.args[0])
                text = f"{module.indent(statement)}{MARK}{model}.set_reshard_after_forward(1)\n"
                made = module.edited([(after, after, text)])
                yield mutant(program, RULE, "set to 1", {module.path: made})
