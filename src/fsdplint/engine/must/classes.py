"""Classes of the project: their bases, and the values that their objects' attributes can have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from fsdplint.engine import ir
from fsdplint.engine.frontend.tree import Tree
from fsdplint.engine.must.definitions import Unbound, reaching, targets
from fsdplint.engine.must.references import UnknownError, matching, reading
from fsdplint.engine.program import Program
from fsdplint.engine.project.unit import Definition, Unit
from fsdplint.knowledge.names import MODULE, canonical

# Bases that set no attributes but their own.
PLAIN_BASES = frozenset({"builtins.object", MODULE, "abc.ABC", "typing.Protocol", "typing.Generic"})
_SETTERS = frozenset({"setattr", "add_module", "register_module", "register_buffer"})
_DYNAMIC = ("setattr", "__dict__", "__getattr__", "__getattribute__", "__slots__", "vars(")

Store = tuple[str, ir.Expr, ir.Stmt]


def owner(program: Program, path: str, function: ir.Function) -> Definition | None:
    """Return the top-level class that a function is a method of."""
    tree = program.tree(path)
    defined = tree.parent(function)
    scope = tree.scope(defined)
    unit = program.project.unit(Path(path))
    if (
        unit is None
        or not isinstance(scope, ir.ClassDef)
        or not isinstance(defined, ir.FunctionDef)
    ):
        return None
    found = unit.definitions.get(scope.name)
    return found if found is not None and unit.node(found) is scope else None


def node_of(cls: Definition) -> ir.ClassDef | None:
    node = cls.unit.node(cls) if cls.unit.lowered is not None else None
    return node if isinstance(node, ir.ClassDef) else None


def lineage(program: Program, cls: Definition) -> tuple[list[Definition], list[str]] | None:
    """Return a class and its bases in the project, and the canonical names of library bases.

    None where a base is not known.
    """
    found: list[Definition] = []
    libraries: list[str] = []
    queue = [cls]
    while queue:
        current = queue.pop()
        node = node_of(current)
        if node is None or len(found) > 20:
            return None
        found.append(current)
        for base in node.bases:
            inner, name = _base(program, current.unit, base)
            if inner is None and not name:
                return None
            queue += [inner] if inner is not None else []
            libraries += [name] if inner is None else []
    return found, libraries


def _base(program: Program, unit: Unit, base: ir.Expr) -> tuple[Definition | None, str]:
    """Return a base class in the project, or a library's canonical name; neither if unknown."""
    text = program.tree(unit.path).slice(ir.base_class(base))
    found = program.project.definition(unit, text)
    if found is not None:
        program.project.unit(Path(found.unit.path))
        return (found, "") if found.kind == "class" else (None, "")
    first, _, rest = text.partition(".")
    if first not in unit.bindings:
        plain = (
            not rest and not unit.imports.stars and text in ("object", "Exception", "dict", "list")
        )
        return None, f"builtins.{text}" if plain else ""
    module, level, member = unit.bindings[first]
    if level or program.project.find(module, level, unit) is not None:
        return None, ""
    return None, canonical(".".join(part for part in (module, member, rest) if part))


def relatives(program: Program, cls: Definition) -> list[Definition] | None:
    """Return all project classes that an object of ``cls``, or of a derived class, may be of.

    None where some base of theirs is not known.
    """
    bases = lineage(program, cls)
    if bases is None:
        return None
    found = list(bases[0])
    queue = [cls]
    while queue:
        for derived in _derived(program, queue.pop()):
            if derived not in found:
                found.append(derived)
                queue.append(derived)
    return found


def _derived(program: Program, cls: Definition) -> Iterator[Definition]:
    """Yield the top-level classes of the project with ``cls`` among their bases."""
    pattern = rf"\bclass\s+\w+\s*\([^)]*\b{re.escape(cls.name)}\b"
    for unit in matching(program, pattern, cls.name):
        for definition in unit.definitions.values():
            node = node_of(definition) if definition.kind == "class" else None
            for base in node.bases if node is not None else ():
                if _base(program, unit, base)[0] is cls or ir.last_name(base) == cls.name:
                    yield definition


def _own_names(cls: Definition) -> set[str]:
    node = node_of(cls)
    names = set(cls.methods)
    for statement in node.body if node is not None else ():
        if isinstance(statement, ir.Assign):
            names |= {ir.last_name(target) for target in statement.targets}
    return names


def has_attribute(program: Program, cls: Definition, name: str) -> bool:
    """True if an object of a class, or of a derived one, may have its own attribute ``name``."""
    try:
        related = relatives(program, cls)
        units = reading(program, name)
    except UnknownError:
        return True
    if related is None or any(name in _own_names(e) or _is_dynamic(program, e) for e in related):
        return True
    trees = [program.tree(unit.path) for unit in units]
    return any(
        _is_setattr(node, name) or _writes(tree, node, name, related)
        for tree in trees
        for node in tree.walk(name)
    )


def method(program: Program, cls: Definition, name: str) -> Definition | None:
    """Return the only method that objects of a class, or of a derived one, have by a name."""
    try:
        related = relatives(program, cls) or []
    except UnknownError:
        return None
    found = [each for each in related if name in _own_names(each)]
    return found[0].methods.get(name) if len(found) == 1 else None


def any_overrides(program: Program, name: str) -> bool:
    """True if a derived class of the project may have the method ``name``."""
    try:
        units = matching(program, rf"\b{re.escape(name)}\b", name)
    except UnknownError:
        return True
    for unit in units:
        for definition in unit.definitions.values():
            node = node_of(definition) if definition.kind == "class" else None
            if node is not None and node.bases and name in _own_names(definition):
                return True
    return False


def stores(program: Program, cls: Definition, name: str) -> list[Store] | None:
    """Return every value that the project stores in an attribute of objects that may be of a class.

    None where other code may store there: a base of a library that sets attributes, a class that
    sets them by computed names, or a statement other than an assignment.
    """
    related = relatives(program, cls)
    bases = lineage(program, cls)
    if related is None or bases is None or not set(bases[1]) <= PLAIN_BASES:
        return None
    if any(name in _own_names(each) or _is_dynamic(program, each) for each in related):
        return None
    found: list[Store] = []
    for unit in reading(program, name):
        tree = program.tree(unit.path)
        for node in tree.walk(name):
            if _is_setattr(node, name):
                return None
            if not _writes(tree, node, name, related):
                continue
            if not isinstance(node, ir.Assign):
                return None
            found.append((unit.path, node.value, node))
    return found or None


def _is_setattr(node: ir.Node, name: str) -> bool:
    if not isinstance(node, ir.Call) or ir.last_name(node.func) not in _SETTERS:
        return False
    named = [each.value for each in node.args if isinstance(each.value, ir.Constant)]
    return any(each.value == name for each in named)


def _is_dynamic(program: Program, cls: Definition) -> bool:
    """True if a class may set attributes by computed names."""
    node = node_of(cls)
    text = "" if node is None else program.tree(cls.unit.path).slice(node)
    return any(word in text for word in _DYNAMIC)


def _writes(tree: Tree, node: ir.Node, name: str, related: list[Definition]) -> bool:
    """True if a statement stores in the attribute ``name`` of an object that may be related."""
    written = (each for each in targets(node) if isinstance(each, ir.Attribute))
    return any(w.attr == name and not _is_of_other(tree, w, related) for w in written)


def _is_of_other(tree: Tree, written: ir.Attribute, related: list[Definition]) -> bool:
    """True if it is ``self.name`` in a method of a class that is not among ``related``."""
    function = tree.function(written)
    while function is not None:
        scope = tree.scope(tree.parent(function))
        if isinstance(scope, ir.ClassDef):
            first = function.parameters[:1]
            own = bool(first) and tree.slice(written.value) == first[0].name
            return own and not any(node_of(each) is scope for each in related)
        function = tree.function(function)
    return False


def always_sets(program: Program, cls: Definition, name: str) -> bool:
    """True if every object of a class, or of a derived one, has an attribute once constructed."""
    try:
        related = relatives(program, cls) or []
    except UnknownError:
        return False
    starts = [each.methods["__init__"] for each in related if "__init__" in each.methods]
    return any(_sets(program, each, name) for each in starts) and all(
        _sets(program, each, name) or "super().__init__(" in _text(program, each) for each in starts
    )


def _sets(program: Program, start: Definition, name: str) -> bool:
    """True if a constructor assigns an attribute on every way through it."""
    node = start.unit.node(start) if start.unit.lowered is not None else None
    if not isinstance(node, ir.FunctionDef) or not node.function.parameters:
        return False
    variable = f"{node.function.parameters[0].name}.{name}"
    end = reaching(program.tree(start.unit.path), node.function, variable, None).at_end
    returns = program.tree(start.unit.path).nodes_of(node.function)
    early = any(isinstance(each, ir.Return) for each in returns)
    return bool(end) and not early and not any(isinstance(each, Unbound) for each in end)


def _text(program: Program, method: Definition) -> str:
    node = method.unit.node(method)
    return "" if node is None else program.tree(method.unit.path).slice(node)
