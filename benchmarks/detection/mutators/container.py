"""container-sharded: the container of the blocks is sharded, and not the blocks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import modules
from benchmarks.detection.mutators.only_root import sharding
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "container-sharded"


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    del random  # nothing is drawn
    for module in modules(program):
        if "FullyShardedDataParallel" in module.text:
            continue
        roots, children = sharding(program, module)
        for child in children:
            if not (isinstance(child, ast.For) and isinstance(child.iter, ast.Attribute)):
                continue
            if f"self.{child.iter.attr} = nn.Sequential" in "".join(program.files.values()):
                continue  # it can be called
            calls = [c for c in ast.walk(child) if isinstance(c, ast.Call) and c.args]
            names = {ast.unparse(root.func) for root in roots}
            own = [c for c in calls if ast.unparse(c.func) in names]
            if len(own) != 1 or ast.unparse(own[0].args[0]) != ast.unparse(child.target):
                continue
            container, call = module.source(child.iter), module.source(own[0])
            given = call.replace(module.source(own[0].args[0]), container, 1)
            for kind, rule, text in (
                ("container", RULE, f"{MARK}{given}"),
                ("container, assigned", RULE, f"{container} = {MARK}{given}"),
                (
                    "blocks in a list",
                    "",
                    call.replace(module.source(own[0].args[0]), f"list({container})", 1),
                ),
            ):
                edit = (*module.span(child), text)
                yield mutant(program, rule, kind, {module.path: module.edited([edit])})
