"""only-root-sharded: nobody shards the blocks, so the whole model is one unit."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import Edit, Module, modules, name_of
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "only-root-sharded"
WRAPPERS = {"FSDP", "FullyShardedDataParallel"}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    for module in modules(program):
        yield from _without_policy(program, module)
        roots, children = sharding(program, module)
        if not (roots and children):
            continue
        for kind, edits in _variants(module, roots, children, random):
            yield mutant(program, RULE, kind, {module.path: module.edited(edits)})


def _variants(
    module: Module, roots: list[ast.Call], children: list[ast.stmt], random: Random
) -> Iterator[tuple[str, list[Edit]]]:
    marks = [(start, start, MARK) for start, _ in map(module.span, roots)]
    gone = [(*module.rows(child), "") for child in children]
    yield "blocks not sharded", [*gone, *marks]
    loops = [child for child in children if isinstance(child, ast.For)]
    if loops:
        others = [(*module.rows(child), "") for child in children if child not in loops]
        change = random.choice(["requires_grad_(True)", "train()"])
        calls = [edit for loop in loops for edit in _harmless(module, loop, change)]
        yield f"loop only does .{change}", [*calls, *others, *marks]
    bare = [root for root in roots if isinstance(module.parents[root], ast.Expr)]
    if bare:
        rebound = [
            (module.span(root)[0], module.span(root)[0], f"{module.source(root.args[0])} = {MARK}")
            for root in bare
        ]
        yield "blocks not sharded, root rebound", [*gone, *rebound]


def _harmless(module: Module, loop: ast.For, change: str) -> Iterator[Edit]:
    """The loop's sharding calls, with something else done to the same modules."""
    for call in ast.walk(loop):
        if isinstance(call, ast.Call) and is_sharding(module, call):
            yield (*module.span(call), f"{module.source(call.args[0])}.{change}")


def is_sharding(module: Module, call: ast.Call) -> bool:
    """Whether a call is of ``fully_shard``, or of a partial of it that the file makes."""
    name = name_of(call)
    partial = f"{name} = functools.partial(fully_shard"
    return name == "fully_shard" or (bool(name) and partial in module.text)


def sharding(program: Program, module: Module) -> tuple[list[ast.Call], list[ast.stmt]]:
    """The calls that shard roots, and the statements that shard children."""
    roots, children = [], []
    for call in module.calls():
        if not is_sharding(module, call) or not call.args:
            continue
        loop = _outermost_loop(module, call)
        argument = ast.unparse(call.args[0])
        if argument in program.roots or (loop is None and not isinstance(call.args[0], ast.List)):
            roots.append(call)
        else:
            children.append(loop or module.statement(call))
    return roots, list(dict.fromkeys(children))


def _outermost_loop(module: Module, node: ast.AST) -> ast.For | None:
    loop = None
    while node in module.parents and not isinstance(node, ast.FunctionDef):
        node = module.parents[node]
        if isinstance(node, ast.For):
            loop = node
    return loop


def _without_policy(program: Program, module: Module) -> Iterator[Mutant]:
    for call in module.calls():
        if name_of(call) not in WRAPPERS:
            continue
        start = module.span(call)[0]
        for keyword in call.keywords:
            if keyword.arg == "auto_wrap_policy":
                value = module.span(keyword.value)
                none = module.edited([(start, start, MARK), (*value, "None")])
                yield mutant(program, RULE, "policy None", {module.path: none})
                begin = module.lines[keyword.lineno - 1] + keyword.col_offset
                end = value[1]
                while module.text[end] in ", \n":
                    end += 1
                dropped = module.edited([(start, start, MARK), (begin, end, "")])
                yield mutant(program, RULE, "policy dropped", {module.path: dropped})
