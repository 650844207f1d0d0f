"""fsdp1-mixed-requires-grad: a part of the model is frozen before FSDP1 wraps the whole."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from benchmarks.detection.module import Module, indented, modules
from benchmarks.detection.mutators.fsdp1_clip import is_lost
from benchmarks.detection.mutators.only_root import sharding
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "fsdp1-mixed-requires-grad"
IMPORT = "from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy"
# With it nothing is said against one unit, and against torch's clipping.
STRATEGY = "sharding_strategy=ShardingStrategy.NO_SHARD"


@dataclass(frozen=True, slots=True)
class Root:
    """The call that shards a root, with what is given to it and what it has blocks in."""

    call: ast.Call
    model: str
    blocks: str


@dataclass(frozen=True, slots=True)
class Freeze:
    """Statements before the sharding, and the arguments of FSDP1."""

    lines: str
    arguments: str = ""


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    for module in modules(program):
        roots, children = sharding(program, module)
        if len(roots) != 1 or not children:
            continue
        model, blocks = module.source(roots[0].args[0]), _blocks(module, children)
        statement = module.statement(roots[0])
        given = isinstance(statement, ast.Expr) and is_lost(module, statement, roots[0].args[0])
        if given or not blocks.startswith(model) or blocks.endswith(")"):
            continue
        root = Root(roots[0], model, blocks)
        for variant in random.sample(WRONG, 4) + random.sample(LEGAL, 2):
            rule = RULE if variant in WRONG else ""
            text = _wrapped(module, root, children, variant(root), MARK if rule else "")
            yield mutant(program, rule, variant.__name__.strip("_"), {module.path: text})


def _blocks(module: Module, children: list[ast.stmt]) -> str:
    """What the first loop that shards runs through."""
    loops = [child for child in children if isinstance(child, ast.For)]
    return module.source(loops[0].iter) if loops else ""


def _wrapped(
    module: Module, root: Root, children: list[ast.stmt], freeze: Freeze, mark: str
) -> str:
    statement = module.statement(root.call)
    start = module.rows(statement)[0]
    indent = module.indent(statement)
    arguments = ", ".join(filter(None, (root.model, STRATEGY, freeze.arguments)))
    call = f"{mark}FullyShardedDataParallel({arguments})"
    if isinstance(statement, ast.Expr):
        call = f"{root.model} = {call}"
    edits = [
        *((*module.rows(child), "") for child in children),
        (start, start, indented(freeze.lines.rstrip() + "\n", indent)),
        (*module.span(root.call), call),
    ]
    return module.edited(edits, imports=IMPORT)


def _part(root: Root) -> Freeze:
    return Freeze(f"{root.blocks}.requires_grad_(False)")


def _loop(root: Root) -> Freeze:
    lines = f"for weight in {root.blocks}.parameters():\n    weight.requires_grad = False"
    return Freeze(lines, "sync_module_states=True")


def _by_name(root: Root) -> Freeze:
    lines = f'for name, p in {root.model}.named_parameters():\n    p.requires_grad = "bias" in name'
    return Freeze(lines)


def _by_condition(root: Root) -> Freeze:
    lines = f"""
for name, weight in {root.model}.named_parameters():
    if name.endswith("bias"):
        weight.requires_grad_(False)"""
    return Freeze(lines.lstrip(), "use_orig_params=False")


def _all_but(root: Root) -> Freeze:
    lines = f"""
for weight in {root.model}.parameters():
    weight.requires_grad = False
for weight in {root.blocks}.parameters():
    weight.requires_grad = True"""
    return Freeze(lines.lstrip())


def _some_blocks(root: Root) -> Freeze:
    lines = f"""
for index, layer in enumerate({root.blocks}):
    if index < 1:
        layer.requires_grad_(False)"""
    return Freeze(lines.lstrip())


def _whole(root: Root) -> Freeze:
    return Freeze(f"{root.model}.requires_grad_(False)\n{root.model}.requires_grad_(True)")


def _original(root: Root) -> Freeze:
    return Freeze(f"{root.blocks}.requires_grad_(False)", "use_orig_params=True")


def _thawed(root: Root) -> Freeze:
    lines = f"{root.blocks}.requires_grad_(False)\n{root.model}.requires_grad_(True)"
    return Freeze(lines)


Variant = Callable[[Root], Freeze]
WRONG: list[Variant] = [_part, _loop, _by_name, _by_condition, _all_but, _some_blocks]
LEGAL: list[Variant] = [_whole, _original, _thawed]
