"""deepcopy-of-sharded-model: the model is copied below the code that shards it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import modules
from benchmarks.detection.mutators.only_root import sharding
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "deepcopy-of-sharded-model"
COPIES = {
    "deepcopy": ("import copy", f"frozen_copy = {MARK}copy.deepcopy({{model}}).eval()\n"),
    "deepcopy by name": ("from copy import deepcopy", f"frozen_copy = {MARK}deepcopy({{model}})\n"),
    "AveragedModel": (
        "import torch",
        f"average = {MARK}torch.optim.swa_utils.AveragedModel({{model}})\n",
    ),
    "": ("import copy", "shallow = copy.copy({model})\n"),
}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    for module in modules(program):
        roots, _ = sharding(program, module)
        if "FullyShardedDataParallel" in module.text:
            continue
        for root in roots:
            statement = module.statement(root)
            if not isinstance(statement, ast.Expr):
                continue
            model, end = module.source(root.args[0]), module.rows(statement)[1]
            for kind in ("deepcopy", random.choice(["deepcopy by name", "AveragedModel"]), ""):
                imports, text = COPIES[kind]
                line = module.indent(statement) + text.format(model=model)
                made = module.edited([(end, end, line)], imports=imports)
                rule = RULE if kind else ""
                yield mutant(program, rule, kind or "shallow copy", {module.path: made})
