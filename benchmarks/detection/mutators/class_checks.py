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
CONTAINERS = {"ModuleList", "ModuleDict", "Sequential"}


@dataclass(frozen=True, slots=True)
class Root:
    """The statement that shards a root, the class of its blocks and the attribute they are in.

    Attributes:
        is_known: the class has its name in the module that shards.
    """

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
    if not isinstance(statement, (ast.Expr, ast.Assign, ast.Return)):
        return
    blocks = {pair for each in everything for pair in _repeated(each)}
    container = module.source(loops[0].iter).rpartition(".")[2]
    named = {pair for pair in blocks if pair[0] == container}
    if len(named or blocks) == 1:
        ((container, name),) = named or blocks
        known = name in set(_top_names(module))
        yield Root(module, statement, module.source(found[0].args[0]), name, container, known)


def _repeated(module: Module) -> Iterator[tuple[str, str]]:
    """Attributes that hold the blocks of a model, and the blocks' class."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            held = _attribute(node.targets[0])
            places = {held: node.value} if held else {}
        elif isinstance(node, ast.Call) and name_of(node) == "append":
            to = node.func.value if isinstance(node.func, ast.Attribute) else node
            held, made = _attribute(to), node.args[0]
            if held and isinstance(made, ast.Call) and isinstance(made.func, ast.Name):
                yield held, made.func.id
            continue
        elif isinstance(node, ast.Dict):
            keys = [each.value if isinstance(each, ast.Constant) else "" for each in node.keys]
            places = {str(key): value for key, value in zip(keys, node.values, strict=True) if key}
        else:
            continue
        for held, value in places.items():
            if isinstance(value, ast.Call) and name_of(value) in CONTAINERS:
                yield from ((held, name) for name in _elements(value))


def _elements(container: ast.Call) -> Iterator[str]:
    """The classes that the comprehensions among a container's arguments repeat."""
    for given in container.args:
        node = given.value if isinstance(given, ast.Starred) else given
        made = node.elt if isinstance(node, ast.ListComp | ast.GeneratorExp) else None
        made = node.value if isinstance(node, ast.DictComp) else made
        if isinstance(made, ast.Call) and isinstance(made.func, ast.Name):
            yield made.func.id


def _top_names(module: Module) -> Iterator[str]:
    """The classes that a module defines or imports."""
    for node in module.tree.body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.ImportFrom):
            yield from (each.asname or each.name for each in node.names)


def _attribute(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else ""


def _inserted(root: Root, check: str) -> str:
    start, end = root.module.rows(root.statement)
    at = start if isinstance(root.statement, ast.Return) else end
    line = f"apply_activation_checkpointing({root.model}, check_fn=lambda module: {check})\n"
    text = indented(line, root.module.indent(root.statement))
    return root.module.edited([(at, at, text)], imports=IMPORT)


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
