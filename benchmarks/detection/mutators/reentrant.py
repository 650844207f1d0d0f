"""reentrant-checkpoint: the forward checkpoints the blocks that FSDP1's policy makes units."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import Edit, Module, modules
from benchmarks.detection.mutators.class_checks import Root, roots
from benchmarks.detection.mutators.fsdp1_clip import is_lost, old_clips
from benchmarks.detection.mutators.only_root import sharding
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "reentrant-checkpoint"
IMPORTS = (
    "import torch.utils.checkpoint\n"
    "from torch.distributed.fsdp import FullyShardedDataParallel\n"
    "from torch.distributed.fsdp.wrap import ModuleWrapPolicy\n"
    "from torch.utils.checkpoint import checkpoint"
)
WRONG = {
    "by name": "checkpoint({call}, §use_reentrant=True)",
    "qualified": "torch.utils.checkpoint.checkpoint({call}, §use_reentrant=True)",
    "with state": "checkpoint({call}, §use_reentrant=True, preserve_rng_state=False)",
}
LEGAL = {"not reentrant": "checkpoint({call}, use_reentrant=False)"}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    everything = modules(program)
    for module in everything:
        for root in roots(program, everything, module):
            given, children = sharding(program, module)
            statement = root.statement
            bare = isinstance(statement, ast.Expr)
            if not root.is_known or (bare and is_lost(module, statement, given[0].args[0])):
                continue
            for kind in (*random.sample(sorted(WRONG), len(WRONG)), *LEGAL):
                text = {**WRONG, **LEGAL}[kind]
                edits = [*_wrapped(module, root, given[0], children), *old_clips(module)]
                calls = list(_checkpointed(module, root, text.replace("§", MARK)))
                if len(calls) == 1:
                    text = module.edited([*edits, *calls], imports=IMPORTS)
                    yield mutant(program, RULE if kind in WRONG else "", kind, {module.path: text})


def _wrapped(
    module: Module, root: Root, call: ast.Call, children: list[ast.stmt]
) -> Iterator[Edit]:
    policy = f"auto_wrap_policy=ModuleWrapPolicy({{{root.block}}})"
    text = f"FullyShardedDataParallel({root.model}, {policy})"
    bare = isinstance(root.statement, ast.Expr)
    yield (*module.span(call), f"{root.model} = {text}" if bare else text)
    yield from ((*module.rows(child), "") for child in children)


def _checkpointed(module: Module, root: Root, text: str) -> Iterator[Edit]:
    """The call of a block in a forward's loop, checkpointed."""
    for loop in ast.walk(module.tree):
        if not isinstance(loop, ast.For) or f"self.{root.container}" not in module.source(
            loop.iter
        ):
            continue
        for node in loop.body:
            call = node.value if isinstance(node, ast.Assign) else None
            plain = isinstance(call, ast.Call) and not call.keywords
            if plain and isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
                given = ", ".join(map(module.source, (call.func, *call.args)))
                yield (*module.span(call), text.format(call=given))
