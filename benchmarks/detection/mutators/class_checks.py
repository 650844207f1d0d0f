"""checkpointing-matches-nothing: activation checkpointing by the very class of sharded blocks."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from benchmarks.detection.module import Module, indented, modules, name_of
from benchmarks.detection.mutators.only_root import sharding
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "checkpointing-matches-nothing"
IMPORT = (
    "from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import "
    "apply_activation_checkpointing"
)


@dataclass(frozen=True, slots=True)
class Root:
    """The statement that shards a root, the class of its blocks and the attribute they are in."""

    module: Module
    statement: ast.stmt
    model: str
    block: str
    container: str
    is_known: bool


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    everything = modules(program)
    for module in everything:
        for root in roots(program, everything, module):
            wrong = WRONG if root.is_known else [_by_name]
            for variant in random.sample(wrong, min(4, len(wrong))):
                kind = variant.__name__.strip("_")
                yield mutant(program, RULE, kind, {module.path: variant(root)})
            for variant in LEGAL if root.is_known else ():
                kind = f"legal: {variant.__name__.strip('_')}"
                yield mutant(program, "", kind, {module.path: variant(root)})


def roots(program: Program, everything: list[Module], module: Module) -> Iterator[Root]:
    found, children = sharding(program, module)
    loops = [child for child in children if isinstance(child, ast.For)]
    if len(found) != 1 or not loops:
        return
    statement = module.statement(found[0])
    if not isinstance(statement, (ast.Expr, ast.Assign)):
        return
    container = module.source(loops[0].iter).rpartition(".")[2]
    names = {name for each in everything for name in _repeated(each, container)}
    if len(names) == 1:
        (name,) = names
        known = any(isinstance(n, ast.ClassDef) and n.name == name for n in module.tree.body)
        yield Root(module, statement, module.source(found[0].args[0]), name, container, known)


def _repeated(module: Module, container: str) -> Iterator[str]:
    """The classes that ``self.<container> = nn.ModuleList(…)`` repeats."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Assign) and _attribute(node.targets[0]) == container:
            inside = [
                n for n in ast.walk(node.value) if isinstance(n, ast.ListComp | ast.GeneratorExp)
            ]
            made = [inner.elt for inner in inside]
        elif isinstance(node, ast.Call) and name_of(node) == "append":
            to = node.func.value if isinstance(node.func, ast.Attribute) else node
            made = node.args if _attribute(to) == container else []
        else:
            continue
        for each in made:
            if isinstance(each, ast.Call) and isinstance(each.func, ast.Name):
                yield each.func.id


def _attribute(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else ""


def _inserted(root: Root, check: str) -> str:
    _, end = root.module.rows(root.statement)
    line = f"apply_activation_checkpointing({root.model}, check_fn=lambda module: {check})\n"
    text = indented(line, root.module.indent(root.statement))
    return root.module.edited([(end, end, text)], imports=IMPORT)


def _is(root: Root) -> str:
    return _inserted(root, f"{MARK}type(module) is {root.block}")


def _equals(root: Root) -> str:
    return _inserted(root, f"{MARK}module.__class__ == {root.block}")


def _among(root: Root) -> str:
    return _inserted(root, f"{MARK}type(module) in ({root.block},)")


def _by_name(root: Root) -> str:
    return _inserted(root, f'{MARK}type(module).__name__ == "{root.block}"')


def _instance(root: Root) -> str:
    return _inserted(root, f"isinstance(module, {root.block})")


def _other_class(root: Root) -> str:
    return _inserted(root, "type(module).__name__ == 'Dropout'")


Variant = Callable[[Root], str]
WRONG: list[Variant] = [_is, _equals, _among, _by_name]
LEGAL: list[Variant] = [_instance, _other_class]
