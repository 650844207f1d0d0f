"""reentrant-checkpoint: the forward checkpoints the blocks that FSDP1's policy makes units."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import Edit, Function, Module, modules, name_of
from benchmarks.detection.mutators.block_calls import block_calls
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
            wrapping = _wrapped(program, everything, root)
            calls = block_calls(everything, root)
            if not wrapping or len(calls) != 1 or calls[0].call.keywords:
                continue
            for kind in (*random.sample(sorted(WRONG), len(WRONG)), *LEGAL):
                text = {**WRONG, **LEGAL}[kind].replace("§", MARK)
                found = calls[0]
                given = ", ".join(map(found.module.source, (found.call.func, *found.call.args)))
                edits = {path: list(own) for path, own in wrapping.items()}
                edit = (*found.module.span(found.call), text.format(call=given))
                edits.setdefault(found.module.path, []).append(edit)
                files = _files(everything, root, edits)
                if files:
                    yield mutant(program, RULE if kind in WRONG else "", kind, files)


def _files(everything: list[Module], root: Root, edits: dict[str, list[Edit]]) -> dict[str, str]:
    """The files changed, each with what it has to import; none if that would be a circle."""
    files = {}
    (owner,) = (m for m in everything for n in m.tree.body if _defines(n, root.block))
    for module in everything:
        own = [*edits.get(module.path, []), *old_clips(module)]
        imports = [IMPORTS] if module.path in edits else []
        wraps = any("FullyShardedDataParallel(" in text for _, _, text in own)
        if wraps and module is not owner:
            if f"from {module.path[:-3]} import" in owner.text:
                return {}
            imports.append(f"from {owner.path[:-3].replace('/', '.')} import {root.block}")
        if own:
            files[module.path] = module.edited(own, imports="\n".join(imports))
    return files


def _defines(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.ClassDef) and node.name == name


def _wrapped(program: Program, everything: list[Module], root: Root) -> dict[str, list[Edit]]:
    """The edits that wrap the model with FSDP1 where FSDP2 sharded it, by file.

    Where a function shards a model and does not return it, its caller wraps instead.
    """
    module = root.module
    given, children = sharding(program, module)
    call, bare = given[0], isinstance(root.statement, ast.Expr)
    if not bare or not is_lost(module, root.statement, call.args[0]):
        text = _wrapper(root, root.model)
        edits: list[Edit] = [(*module.span(call), f"{root.model} = {text}" if bare else text)]
        return {module.path: [*edits, *((*module.rows(child), "") for child in children)]}
    function: ast.AST = root.statement
    while not isinstance(function, Function):
        function = module.parents[function]
    calls = [(each, c) for each in everything for c in each.calls() if name_of(c) == function.name]
    if len(calls) != 1 or not calls[0][1].args or function.args.args[0].arg != root.model:
        return {}
    caller, made = calls[0]
    if not isinstance(caller.parents[made], ast.Expr):
        return {}
    model = caller.source(made.args[0])
    return {caller.path: [(*caller.span(made), f"{model} = {_wrapper(root, model)}")]}


def _wrapper(root: Root, model: str) -> str:
    policy = f"auto_wrap_policy=ModuleWrapPolicy({{{root.block}}})"
    return f"FullyShardedDataParallel({model}, {policy})"
