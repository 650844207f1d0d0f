"""sharded-twice: the code that shards the model, or its blocks, stands there twice."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import modules
from benchmarks.detection.mutators.only_root import sharding
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "sharded-twice"


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    del random  # nothing is drawn
    for module in modules(program):
        roots, children = sharding(program, module)
        if "FullyShardedDataParallel" in module.text:
            continue
        for root in roots:
            statement = module.statement(root)
            end = module.rows(statement)[1]
            again = f"{module.indent(statement)}{MARK}{module.source(root)}\n"
            if isinstance(statement, ast.Expr):
                made = module.edited([(end, end, again)])
                yield mutant(program, RULE, "root twice", {module.path: made})
            elif isinstance(statement, ast.Return):
                start = module.rows(statement)[0]
                place = module.span(root)[0]
                first = again.replace(MARK, "")
                made = module.edited([(start, start, first), (place, place, MARK)])
                yield mutant(program, RULE, "root twice, returned", {module.path: made})
        for child in children:
            if isinstance(child, ast.For) and isinstance(child.iter, ast.Attribute):
                start, end = module.rows(child)
                text = module.text[start:end]
                names = {ast.unparse(root.func) for root in roots}
                for name in names:
                    text = text.replace(f"{name}(", f"{MARK}{name}(")
                if MARK in text:
                    made = module.edited([(end, end, text)])
                    yield mutant(program, RULE, "blocks twice", {module.path: made})
