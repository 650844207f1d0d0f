"""The files of a project that mention a name, and every call of a function."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fsdplint.engine import ir
from fsdplint.engine.frontend.tree import Tree
from fsdplint.engine.program import Program
from fsdplint.engine.project.unit import Definition, Unit

# If more files than these are relevant to one question, its answer is unknown.
MAX_FILES = 100


class UnknownError(Exception):
    """The text does not give the answer."""


def matching(program: Program, pattern: str, word: str) -> list[Unit]:
    """Return the Python files whose text matches ``pattern``; ``word`` is in every match.

    Raises:
        UnknownError: there are too many.
    """
    found = re.compile(pattern)
    texts = ((path, program.project.read(path) or "") for path in program.files)
    paths = [path for path, text in texts if word in text and found.search(text)]
    if len(paths) > MAX_FILES:
        raise UnknownError
    units = map(program.project.unit, paths)
    return [unit for unit in units if unit is not None]


def reading(program: Program, attribute: str) -> list[Unit]:
    """Return the files with ``.attribute``, or with its name as a whole string."""
    name = re.escape(attribute)
    return matching(program, rf"\.\s*{name}\b|[\"']{name}[\"']", attribute)


def mentions(program: Program, pattern: str, word: str) -> bool:
    """True if the text of a file matches ``pattern``, or if too many do to know."""
    try:
        return bool(matching(program, pattern, word))
    except UnknownError:
        return True


@dataclass(frozen=True, slots=True)
class Caller:
    """One ``call`` in the file at ``path``."""

    path: str
    call: ir.Call


def callers(program: Program, path: str, function: ir.Function) -> list[Caller] | None:
    """Return every call of a function or method, None if there is none or it is passed on.

    Calls of a method are all calls of a method of that name, on any object. None also covers
    functions with decorators, which may pass them on, and nested functions.

    Raises:
        UnknownError: too many files may call it.
    """
    tree = program.tree(path)
    defined = tree.parent(function)
    scope = tree.scope(defined)
    if function.decorators or not isinstance(defined, ir.FunctionDef):
        return None
    if isinstance(scope, ir.ClassDef) and function.name != "__init__":
        mentions = _of_method(program, function.name)
    elif isinstance(scope, ir.ClassDef):
        mentions = _of_definition(program, path, scope.name, scope)
    elif isinstance(scope, ir.Module):
        mentions = _of_definition(program, path, function.name, defined)
    else:
        return None
    found: list[Caller] = []
    for unit, mentioned in mentions:
        call = None if mentioned is None else program.tree(unit.path).parent(mentioned)
        if not isinstance(call, ir.Call) or call.func is not mentioned:
            return None
        found.append(Caller(unit.path, call))
    return found or None


# A file and an expression in it, None for a mention under another name.
_Mention = tuple[Unit, "ir.Node | None"]


def _of_method(program: Program, name: str) -> Iterator[_Mention]:
    """Yield every ``.name`` in the project."""
    for unit in reading(program, name):
        for node in program.tree(unit.path).walk(name):
            if isinstance(node, ir.Attribute) and node.attr == name:
                yield unit, node


def _of_definition(program: Program, path: str, name: str, defined: ir.Node) -> Iterator[_Mention]:
    """Yield the expressions that refer to ``name`` at the top level of a file."""
    home = program.project.sketch(Path(path))
    target = None if home is None else home.definitions.get(name)
    if home is None or target is None or home.node(target) is not defined:
        raise UnknownError
    for unit in _naming(program, home, name):
        tree = program.tree(unit.path)
        renamed = (a for a, (_, _, member) in unit.bindings.items() if member == name != a)
        if any(program.project.definition(unit, alias) is target for alias in renamed):
            yield unit, None
        for node in tree.walk(name):
            if _means(program, tree, unit, node, target):
                yield unit, node


def _naming(program: Program, home: Unit, name: str) -> list[Unit]:
    """Return the files that may refer to a top-level name of ``home``: itself and its importers."""
    word = rf"\b{re.escape(name)}\b"
    stem = (
        Path(home.path).parent.name if home.path.endswith("__init__.py") else Path(home.path).stem
    )
    found = []
    for unit in matching(program, word, name):
        imports = unit.imports
        members = {member for _, _, member in imports.bindings.values()}
        modules = {part for module, _ in imports.modules for part in module.split(".")}
        if unit is home or name in members or stem in modules or imports.stars:
            found.append(unit)
    return found


def _means(program: Program, tree: Tree, unit: Unit, node: ir.Node, target: Definition) -> bool:
    """True if a name or ``module.name`` refers to the top-level definition ``target``."""
    if isinstance(node, ir.Name):
        own = unit is target.unit and node.id == target.name
        return own or program.project.definition(unit, node.id) is target
    if not isinstance(node, ir.Attribute) or node.attr != target.name:
        return False
    module = program.project.module(unit, tree.slice(node.value))
    return module is not None and program.project.definition(module, node.attr) is target
