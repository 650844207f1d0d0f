"""Calls that make accelerate's plugin for FSDP, with the classes that they have it wrap."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.engine.frontend.tree import Tree
from fsdplint.engine.program import Program
from fsdplint.knowledge.accelerate_settings import PLUGIN_CLASSES, WRAPS_CLASSES
from fsdplint.knowledge.frameworks import is_strategy
from fsdplint.knowledge.transformers_settings import POLICY

_PACKAGE = "accelerate."


def classes_to_wrap(program: Program) -> Iterator[tuple[Tree, ir.Constant]]:
    """Yield each text that names classes, where the call says that it wraps by class."""
    for tree in program.trees_with(PLUGIN_CLASSES):
        for node in tree.walk(PLUGIN_CLASSES):
            if not isinstance(node, ir.Call):
                continue
            given = {each.keyword: each.value for each in node.args if each.keyword}
            policy = given.get(POLICY)
            name = program.project.library_name(tree.path, node.func)
            by_class = (
                isinstance(policy, ir.Constant) and str(policy.value).upper() == WRAPS_CLASSES
            )
            if PLUGIN_CLASSES in given and by_class and _is_plugin(name):
                yield from ((tree, text) for text in _texts(given[PLUGIN_CLASSES]))


def _is_plugin(name: str) -> bool:
    return name.startswith(_PACKAGE) and is_strategy(name)


def _texts(value: ir.Expr) -> Iterator[ir.Constant]:
    for each in value.elements if isinstance(value, ir.Collection) else (value,):
        if isinstance(each, ir.Constant) and isinstance(each.value, str):
            yield each
