"""The calls of a function: all there are in the project, or the answer that others may call it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fsdplint.engine import ir
from fsdplint.engine.program import Program
from fsdplint.engine.tree import Tree
from fsdplint.engine.unit import Definition, Unit


@dataclass(frozen=True, slots=True)
class Caller:
    """One ``call`` in the file at ``path``."""

    path: str
    call: ir.Call


def callers(program: Program, path: str, function: ir.Function) -> list[Caller] | None:
    """Every call of a function or method, None if it is passed on, or nobody is seen to call it.

    A method's are all calls of a method of that name, whatever they are on.
    """
    tree = program.tree(path)
    defined = tree.parent(function)
    scope = tree.scope(defined)
    if function.decorators or not isinstance(defined, ir.FunctionDef):
        return None
    if isinstance(scope, ir.ClassDef) and function.name == "__init__":
        name, mentions = scope.name, _of_definition
    elif isinstance(scope, (ir.ClassDef, ir.Module)):
        name = function.name
        mentions = _of_method if isinstance(scope, ir.ClassDef) else _of_definition
    else:
        return None
    found: list[Caller] = []
    for unit, mentioned in mentions(program, path, name):
        call = None if mentioned is None else program.tree(unit.path).parent(mentioned)
        if not isinstance(call, ir.Call) or call.func is not mentioned:
            return None
        found.append(Caller(unit.path, call))
    return found or None


# A file with an expression in it, None for a mention that cannot be followed.
_Mention = tuple[Unit, "ir.Node | None"]


def _of_method(program: Program, path: str, name: str) -> Iterator[_Mention]:  # noqa: ARG001 - as the other
    """Every ``.name`` of the project, whatever it is read from."""
    for unit in naming(program, name):
        for node in program.tree(unit.path).walk(name):
            if isinstance(node, ir.Attribute) and node.attr == name:
                yield unit, node


def _of_definition(program: Program, path: str, name: str) -> Iterator[_Mention]:
    """The expressions that mean what ``name`` is at the top level of a file."""
    home = program.project.sketch(Path(path))
    target = None if home is None else home.definitions.get(name)
    for unit in naming(program, name) if target is not None else ():
        tree = program.tree(unit.path)
        renamed = (a for a, (_, _, member) in unit.bindings.items() if member == name != a)
        if any(program.project.definition(unit, alias) is target for alias in renamed):
            yield unit, None
        for node in tree.walk(name):
            if target is not None and _means(program, tree, unit, node, target):
                yield unit, node


def naming(program: Program, name: str) -> Iterator[Unit]:
    """The files of the project whose text has a word; those that are no Python are left out."""
    word = re.compile(rf"\b{re.escape(name)}\b")
    for path in program.files:
        text = program.project.read(path) or ""
        if name in text and word.search(text):
            unit = program.project.unit(path)
            if unit is not None:
                yield unit


def _means(program: Program, tree: Tree, unit: Unit, node: ir.Node, target: Definition) -> bool:
    """Whether a name or ``module.name`` is the top-level definition ``target``."""
    if isinstance(node, ir.Name):
        own = unit is target.unit and node.id == target.name
        return own or program.project.definition(unit, node.id) is target
    if not isinstance(node, ir.Attribute) or node.attr != target.name:
        return False
    module = program.project.module(unit, tree.slice(node.value))
    return module is not None and program.project.definition(module, node.attr) is target
