"""module-added-after-sharding: the model gets another layer once it is sharded."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import modules
from benchmarks.detection.mutators.only_root import sharding
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "module-added-after-sharding"
ADDITIONS = {
    "layer": f"{MARK}{{model}}.adapter = torch.nn.Linear(4, 4)\n",
    "setattr": f'{MARK}setattr({{model}}, "adapter", torch.nn.Linear(4, 4))\n',
    "parameter": f"{MARK}{{model}}.token = torch.nn.Parameter(torch.zeros(4))\n",
    "": "{model}.adapter = torch.nn.Linear(4, 4).requires_grad_(False)\n",
}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    for module in modules(program):
        roots, children = sharding(program, module)
        if "FullyShardedDataParallel" in module.text or not children:
            continue
        for root in roots:
            statement = module.statement(root)
            if not isinstance(module.parents[root], ast.Expr) or len(roots) > 1:
                continue
            model, end = module.source(root.args[0]), module.rows(statement)[1]
            for kind in ("layer", random.choice(["setattr", "parameter"]), ""):
                if not kind and "requires_grad_(True)" in module.text:
                    continue  # it would not stay frozen
                text = module.indent(statement) + ADDITIONS[kind].format(model=model)
                made = module.edited([(end, end, text)], imports="import torch")
                rule = RULE if kind else ""
                yield mutant(program, rule, kind or "frozen layer", {module.path: made})
