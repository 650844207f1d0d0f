"""root-sharded-before-children: the model is sharded above the code that shards its parts."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import Edit, Module, modules
from benchmarks.detection.mutators.only_root import sharding
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "root-sharded-before-children"


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    del random  # nothing is drawn
    for module in modules(program):
        roots, children = sharding(program, module)
        if "FullyShardedDataParallel" in module.text or len(roots) != 1 or not children:
            continue
        root = module.statement(roots[0])
        together = [child for child in children if child in module.block(root).statements]
        if not together or isinstance(module.parents[roots[0]], ast.NamedExpr):
            continue
        for kind, edits in _variants(module, roots[0], root, together):
            yield mutant(program, RULE, kind, {module.path: module.edited(edits)})


def _variants(
    module: Module, call: ast.Call, root: ast.stmt, children: list[ast.stmt]
) -> Iterator[tuple[str, list[Edit]]]:
    moved = f"{module.indent(root)}{MARK}{module.source(call)}\n"
    model, start = module.source(call.args[0]), module.rows(children[0])[0]
    left = module.rows(root)
    kept = "" if isinstance(root, ast.Expr) else f"{module.indent(root)}return {model}\n"
    if isinstance(root, (ast.Expr, ast.Return)):
        yield "root first", [(start, start, moved), (*left, kept)]
    named = f"{module.indent(root)}{model} = {MARK}{module.source(call)}\n"
    if isinstance(root, ast.Expr) and model.isidentifier():
        yield "root first, assigned", [(start, start, named), (*left, "")]
    if len(children) > 1:
        start = module.rows(children[-1])[0]
        yield "root before the last part", [(start, start, moved), (*left, kept)]
