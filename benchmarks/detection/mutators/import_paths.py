"""old-import-path: an import that torch 2.13 has no more, at the top or in a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import Function, Module, modules
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "old-import-path"
WRONG = (
    "from torch.distributed._composable import fully_shard as fully_shard_",
    "from torch.distributed._composable.fsdp._fsdp_state import FSDPState",
    "from torch.distributed._composable.fsdp._fsdp_api import OffloadPolicy as Offloads",
    "from torch.distributed._tensor import Replicate, _Partial",
    "from torch.distributed._tensor.debug import CommDebugMode",
    "from torch.distributed._tensor.random import manual_seed",
    "from torch.distributed.fsdp.wrap import default_auto_wrap_policy, wrap",
    "from torch.distributed.fsdp import ShardedGradScaler",
    "import torch.distributed._tensor.ops",
    "import torch.distributed.pipeline.sync as pipes",
)
LEGAL = (
    "from torch.distributed._composable.fsdp import FSDPModule as Sharded",
    "from torch.distributed._tensor import DTensor as Distributed",
    "from torch.distributed._tensor.placement_types import Placement",
    "from torch.distributed.tensor.debug import CommDebugMode",
)


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    for module in modules(program):
        if "fully_shard" not in module.text and "FullyShardedDataParallel" not in module.text:
            continue
        for line in random.sample(WRONG, 3):
            text = module.edited([], imports=MARK + line)
            yield mutant(program, RULE, f"at the top: {line}", {module.path: text})
        every = [node for node in ast.walk(module.tree) if isinstance(node, Function)]
        functions = [each for each in every if each.body[0].lineno > each.lineno]
        if functions:
            line = random.choice(WRONG)
            text = _inside(module, random.choice(functions), MARK + line)
            yield mutant(program, RULE, f"in a function: {line}", {module.path: text})
        tried = f"try:\n    {random.choice(WRONG)}\nexcept ImportError:\n    pass"
        for kind, line in (("kept", random.choice(LEGAL)), ("tried", tried)):
            yield mutant(program, "", kind, {module.path: module.edited([], imports=line)})


def _inside(module: Module, function: ast.FunctionDef | ast.AsyncFunctionDef, line: str) -> str:
    first = function.body[0]
    start = module.rows(first)[0]
    return module.edited([(start, start, f"{module.indent(first)}{line}\n")])
