"""mesh-arguments and mesh-dimension-roles: a mesh that cannot be made, or is used otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import modules
from benchmarks.detection.mutators.only_root import sharding
from benchmarks.detection.program import MARK, Mutant, Program, mutant

MAKE = "torch.distributed.init_device_mesh"
WRONG = {
    "index": '"cuda:0", (8,)',
    "device": 'torch.device("cuda"), (8,)',
    "number": '"cuda", 8',
    "text": '"cuda", (8,), mesh_dim_names="dp"',
    "position": '"cuda", (8,), ("dp",)',
    "": '"cuda", (2, 4), mesh_dim_names=("dp", "tp")',
}
ROLES = {
    "tensor parallel": '("dp", "tp")',
    "swapped": '("shard", "replicate")',
    "both to shard": '("dp_shard", "cp")',
    "": '("replicate", "shard")',
}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    for module in modules(program):
        roots, children = sharding(program, module)
        if "FullyShardedDataParallel" in module.text or len(roots) != 1 or not children:
            continue
        statement = module.statement(roots[0])
        start, indent = module.rows(statement)[0], module.indent(statement)
        for kind in (*random.sample([kind for kind in WRONG if kind], 3), ""):
            text = f"{indent}grid = {MARK}{MAKE}({WRONG[kind]})\n"
            made = module.edited([(start, start, text)], imports="import torch")
            yield mutant(program, "mesh-arguments" * bool(kind), kind, {module.path: made})
        if any(keyword.arg in ("mesh", None) for keyword in roots[0].keywords):
            continue
        begin, end = module.span(roots[0])
        for kind, names in ROLES.items():
            text = f'{indent}grid = {MAKE}("cuda", (2, 4), mesh_dim_names={names})\n'
            given = random.choice(["grid", f"grid[{names[1:-1]}]"])
            edits = [(begin, begin, MARK), (end - 1, end - 1, f", mesh={given}")]
            edits.append((start, start, text))
            if begin == start:
                continue
            made = module.edited(edits, imports="import torch")
            rule = "mesh-dimension-roles" * bool(kind)
            yield mutant(program, rule, kind or "right order", {module.path: made})
