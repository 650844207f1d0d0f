"""What of an imported module's top level can wait until a name that it binds is read.

A module is imported for a few of its names. What binds the others, and does nothing else, need
never run: a definition, or a variable of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.engine.link import Project, identifiers
from fsdplint.engine.unit import TopLevel, Unit


def top_level(project: Project, unit: Unit) -> TopLevel:
    """How an import runs the file of ``unit``."""
    if unit not in project.top_levels:
        project.top_levels[unit] = _top_level(project, unit)
    return project.top_levels[unit]


def _top_level(project: Project, unit: Unit) -> TopLevel:
    bound = Counter(name for node in unit.module.body for name in _binds(node))
    at_once: list[ir.Stmt] = []
    waiting: dict[str, ir.Stmt] = {}
    for node in unit.module.body:
        names = list(_binds(node))
        alone = len(names) == 1 and bound[names[0]] == 1
        if alone and _can_wait(project, unit, node):
            waiting[names[0]] = node
        else:
            at_once.append(node)
    return TopLevel(tuple(at_once), waiting)


def _binds(statement: ir.Stmt) -> Iterator[str]:
    """The names that a statement binds in its scope; those that it deletes are among them."""
    if isinstance(statement, ir.FunctionDef):
        yield statement.function.name
    elif isinstance(statement, ir.ClassDef):
        yield statement.name
    else:
        for node in ir.walk(statement):
            yield from _bound_by(node)


def _bound_by(node: ir.Node) -> Iterator[str]:
    targets: tuple[ir.Expr, ...] = ()
    if isinstance(node, (ir.FunctionDef, ir.ClassDef)):
        yield from _binds(node)
    elif isinstance(node, (ir.Import, ir.ImportFrom)):
        for name, alias in node.names:
            yield alias or name.split(".")[0]
    elif isinstance(node, (ir.Assign, ir.Delete)):
        targets = node.targets
    elif isinstance(node, (ir.AugAssign, ir.For, ir.NamedExpr)):
        targets = (node.target,)
    for target in targets:
        names, _ = identifiers(target)
        yield from names


def _can_wait(project: Project, unit: Unit, node: ir.Stmt) -> bool:
    if isinstance(node, ir.FunctionDef):
        return not any(_may_register(project, unit, each) for each in node.function.decorators)
    if isinstance(node, ir.ClassDef):
        return not any(_may_register(project, unit, each) for each in node.decorators)
    if not isinstance(node, ir.Assign) or not isinstance(node.targets[0], ir.Name):
        return False
    calls = [each for each in ir.walk(node.value) if isinstance(each, ir.Call)]
    return not any(_may_register(project, unit, call) for call in calls if _hands_on(unit, call))


def _may_register(project: Project, unit: Unit, node: ir.Expr) -> bool:
    """Whether code of the project runs, which may note what it is given."""
    names, _ = identifiers(node)
    return project.defines_one(unit, names)


def _hands_on(unit: Unit, call: ir.Call) -> bool:
    """Whether a call is given a function or class of the module."""
    names, _ = identifiers(*(argument.value for argument in call.args))
    return not names.isdisjoint(
        name for name, definition in unit.definitions.items() if definition.kind != "variable"
    )
