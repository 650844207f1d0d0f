"""policy-missing-on-root: blocks and root that compute in different precisions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import Edit, Module, modules
from benchmarks.detection.mutators.fully_shard_arguments import (
    FSDP,
    IMPORTS,
    added,
    clashes,
    shards,
)
from benchmarks.detection.mutators.only_root import sharding
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "policy-missing-on-root"
_POLICY = f"{FSDP}.MixedPrecisionPolicy"
LOW = f"mp_policy={_POLICY}(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)"
FULL = f"mp_policy={_POLICY}(reduce_dtype=torch.float32)"
BACK = f"mp_policy={_POLICY}(param_dtype=torch.bfloat16, output_dtype=torch.float32)"

# Kinds, with the argument of the blocks and of the root, "" for none, and whether it is wrong.
KINDS = {
    "blocks only": (LOW, "", True),
    "root in full": (LOW, FULL, True),
    "both": (LOW, LOW, False),
    "blocks give full": (BACK, "", False),
    "both in full": ("", FULL, False),
}


def mutate(program: Program, _: Random) -> Iterator[Mutant]:
    for module in modules(program):
        roots, children = sharding(program, module)
        if not ({each.name for each in _heads(program)} and roots and children):
            continue
        inner = [call for call in module.calls() if shards(call) and call not in roots]
        if not inner or any(clashes(call, LOW) for call in [*roots, *inner]) or len(roots) > 1:
            continue
        if not all(_is_plain(child) for child in children):
            continue
        for kind, (blocks, root, wrong) in KINDS.items():
            edits: list[Edit] = [added(module, call, blocks) for call in inner if blocks]
            edits += [added(module, call, root) for call in roots if root]
            edits += [(at, at, MARK) for at, _ in map(module.span, roots) if wrong]
            files = {module.path: module.edited(edits, imports=IMPORTS)}
            yield mutant(program, RULE if wrong else "", kind, files)


def _is_plain(child: ast.stmt) -> bool:
    """Whether the blocks of one attribute are sharded, rather than what a test picks."""
    return isinstance(child, ast.For) and "named_modules" not in ast.unparse(child.iter)


def _heads(program: Program) -> Iterator[ast.ClassDef]:
    """Classes that end in a matrix product of their own, behind their blocks."""
    for module in modules(program):
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef) and _ends_in_linear(module, node):
                yield node


def _ends_in_linear(module: Module, cls: ast.ClassDef) -> bool:
    text = module.source(cls)
    made = [
        ast.unparse(n.targets[0])
        for n in ast.walk(cls)
        if isinstance(n, ast.Assign) and "Linear(" in ast.unparse(n.value)
    ]
    last = [line for line in text.splitlines() if line.strip().startswith("return ")][-1:]
    return "ModuleList" in text and any(f"{name}(" in line for name in made for line in last)
