"""materialized-without-init: `to_empty` throws the weights away, and nothing sets them again."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from random import Random

from benchmarks.detection.module import Edit, Module, indented, modules, name_of
from benchmarks.detection.mutators.only_root import WRAPPERS, sharding
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "materialized-without-init"


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    for module in modules(program):
        if "to_empty" in module.text or "dcp.load" in module.text:
            continue  # its weights come from a checkpoint
        for root in models(program, module):
            for variant in (_plain, random.choice([_helper, _each_module, _rebound])):
                edits, helper = variant(module, root)
                kind = f"{variant.__name__.strip('_')} at {module.source(root.args[0])}"
                text = module.edited(edits, helper=helper)
                yield mutant(program, RULE, kind, {module.path: text})


def models(program: Program, module: Module) -> list[ast.Call]:
    """The calls that shard a whole model, given by name."""
    roots, _ = sharding(program, module)
    wrappers = [call for call in module.calls() if name_of(call) in WRAPPERS]
    return [call for call in dict.fromkeys([*roots, *wrappers]) if _names_model(call)]


def _names_model(call: ast.Call) -> bool:
    return bool(call.args) and isinstance(call.args[0], (ast.Name, ast.Attribute, ast.Subscript))


def _model(module: Module, root: ast.Call) -> str:
    return module.source(root.args[0])


def _put(module: Module, root: ast.Call, lines: str) -> list[Edit]:
    """``lines`` below the sharding; above it where its value is used, and for FSDP1."""
    statement = module.statement(root)
    start, end = module.rows(statement)
    bare = isinstance(statement, ast.Expr) and statement.value is root
    at = end if bare else start
    return [(at, at, indented(lines, module.indent(statement)))]


Variant = Callable[[Module, ast.Call], tuple[list[Edit], str]]


def _plain(module: Module, root: ast.Call) -> tuple[list[Edit], str]:
    line = f'{MARK}{_model(module, root)}.to_empty(device="cpu")\n'
    return _put(module, root, line), ""


def _rebound(module: Module, root: ast.Call) -> tuple[list[Edit], str]:
    model = _model(module, root)
    return _put(module, root, f'{model} = {MARK}{model}.to_empty(device="cpu")\n'), ""


def _each_module(module: Module, root: ast.Call) -> tuple[list[Edit], str]:
    model = _model(module, root)
    body = f'    {MARK}submodule.to_empty(device="cpu", recurse=False)\n'
    return _put(module, root, f"for submodule in {model}.modules():\n{body}"), ""


def _helper(module: Module, root: ast.Call) -> tuple[list[Edit], str]:
    helper = f"""
    def materialize(network, target="cpu"):
        {MARK}network.to_empty(device=target)
        network.train()
    """
    return _put(module, root, f"materialize({_model(module, root)})\n"), helper
