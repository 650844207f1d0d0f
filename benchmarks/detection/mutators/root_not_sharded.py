"""root-not-sharded: the blocks are units and nobody shards the model around them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import Edit, Module, modules
from benchmarks.detection.mutators.only_root import sharding
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "root-not-sharded"


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    for module in modules(program):
        roots, children = sharding(program, module)
        if not (roots and children) or "FullyShardedDataParallel" in module.text:
            continue
        for kind, edits in _variants(module, roots, children, random):
            yield mutant(program, RULE, kind, {module.path: module.edited(edits)})


def _variants(
    module: Module, roots: list[ast.Call], children: list[ast.stmt], random: Random
) -> Iterator[tuple[str, list[Edit]]]:
    marks = list(_marks(module, children, roots))
    gone = [edit for root in roots for edit in _removed(module, root, "")]
    yield "root not sharded", [*gone, *marks]
    change = random.choice(["train()", "requires_grad_(True)"])
    instead = [edit for root in roots for edit in _removed(module, root, f".{change}")]
    yield f"root only gets .{change}", [*instead, *marks]
    if any(isinstance(child, ast.For) for child in children):
        listed = [edit for child in children for edit in _comprehension(module, child, roots)]
        left = [child for child in children if not isinstance(child, ast.For)]
        if listed:
            kind = "root not sharded, blocks in a comprehension"
            yield kind, [*gone, *listed, *_marks(module, left, roots)]


def _removed(module: Module, root: ast.Call, instead: str) -> Iterator[Edit]:
    """The model as it is, or with something harmless done to it, where it was sharded."""
    yield (*module.span(root), module.source(root.args[0]) + instead)


def _calls(child: ast.stmt, roots: list[ast.Call]) -> Iterator[ast.Call]:
    for node in ast.walk(child):
        if isinstance(node, ast.Call) and node.args and node not in roots:
            yield node


def _marks(module: Module, children: list[ast.stmt], roots: list[ast.Call]) -> Iterator[Edit]:
    names = {ast.unparse(root.func) for root in roots}
    for child in children:
        for call in _calls(child, roots):
            if ast.unparse(call.func) in names:
                start = module.span(call)[0]
                yield start, start, MARK


def _comprehension(module: Module, child: ast.stmt, roots: list[ast.Call]) -> Iterator[Edit]:
    """``for block in blocks: shard(block)`` as a list of what it returns."""
    names = {ast.unparse(root.func) for root in roots}
    if not isinstance(child, ast.For) or len(child.body) != 1:
        return
    only = child.body[0]
    call = only.value if isinstance(only, ast.Expr) else None
    if isinstance(call, ast.Call) and ast.unparse(call.func) in names:
        text = f"[{MARK}{module.source(call)} for {module.source(child.target)} in "
        yield (*module.span(child), f"{text}{module.source(child.iter)}]")
