"""fsdp1-mesh-not-reduced: FSDP1 with a mesh of two dimensions of which it uses one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import Module, modules, name_of
from benchmarks.detection.mutators.fully_shard_arguments import FSDP
from benchmarks.detection.mutators.only_root import WRAPPERS
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "fsdp1-mesh-not-reduced"
MAKE = "torch.distributed.init_device_mesh"
GRID = f'device_mesh={MAKE}("cuda", (2, 4), mesh_dim_names=("node", "gpu"))'
STRATEGY = f"{FSDP}.ShardingStrategy."
# The arguments, by what is wrong with them; "" stands before what is right.
WRONG = {
    "default": GRID,
    "full": f"{GRID}, sharding_strategy={STRATEGY}FULL_SHARD",
    "gradients": f"{GRID}, sharding_strategy={STRATEGY}SHARD_GRAD_OP",
    "nothing to shard over": f'device_mesh={MAKE}("cuda", (8, 1)), '
    f"sharding_strategy={STRATEGY}HYBRID_SHARD",
}
LEGAL = {
    "hybrid": f"{GRID}, sharding_strategy={STRATEGY}HYBRID_SHARD",
    "one dimension": f'device_mesh={MAKE}("cuda", (8,))',
    "tensor parallel": f'device_mesh={MAKE}("cuda", (4, 2), mesh_dim_names=("dp", "tp"))',
}
TAKEN = {"device_mesh", "process_group", "sharding_strategy", None}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    for module in modules(program):
        for call in module.calls():
            keywords = {keyword.arg for keyword in call.keywords}
            if name_of(call) in WRAPPERS and len(call.args) == 1 and not keywords & TAKEN:
                for kind in random.sample(sorted(WRONG), 3):
                    yield _mutant(program, module, call, RULE, kind, WRONG[kind])
                for kind, arguments in LEGAL.items():
                    yield _mutant(program, module, call, "", kind, arguments)


def _mutant(
    program: Program, module: Module, call: ast.Call, rule: str, kind: str, arguments: str
) -> Mutant:
    start, _ = module.span(call)
    last = (call.keywords or call.args)[-1]
    place = module.span(last.value if isinstance(last, ast.keyword) else last)[1]
    edits = [(place, place, f", {arguments}")]
    if rule:
        edits.append((start, start, MARK))
    made = module.edited(edits, imports=f"import torch\nimport {FSDP}")
    return mutant(program, rule, kind, {module.path: made})
