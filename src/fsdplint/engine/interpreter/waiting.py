"""What of an imported module's top level can wait until a name that it binds is read.

A module is imported for a few of its names. What binds the others, and does nothing else, need
never run: a definition, or a variable of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.engine.interpreter.registering import may_register, registers
from fsdplint.engine.interpreter.shape import is_main_guard
from fsdplint.engine.project.project import Project, identifiers
from fsdplint.engine.project.unit import TopLevel, Unit, Waiting


def top_level(project: Project, unit: Unit) -> TopLevel:
    """How an import runs the file of ``unit``."""
    if unit not in project.top_levels:
        project.top_levels[unit] = _top_level(project, unit)
    return project.top_levels[unit]


def _top_level(project: Project, unit: Unit) -> TopLevel:
    binds = [(node, dict.fromkeys(_binds(node))) for node in unit.module.body]
    bound = Counter(name for _, names in binds for name in names)
    at_once: list[ir.Stmt] = []
    waiting: dict[str, Waiting] = {}
    for node, names in binds:
        alone = names and all(bound[name] == 1 for name in names)
        if alone and not _is_import(node) and _can_wait(project, unit, node):
            waiting.update(dict.fromkeys(names, Waiting(node, tuple(names))))
        elif not _is_for_program(node):
            at_once.append(node)
    return TopLevel(tuple(at_once), waiting)


def _is_for_program(node: ir.Stmt) -> bool:
    """Whether an import runs nothing of a statement."""
    return isinstance(node, ir.If) and is_main_guard(node) and not node.orelse


def _is_import(node: ir.Stmt) -> bool:
    """Names are read as late as can be from what an import alone binds, too."""
    return isinstance(node, (ir.Import, ir.ImportFrom))


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
    """Whether a statement does nothing but to bind names."""
    if isinstance(node, ir.FunctionDef):
        return not any(may_register(project, unit, each) for each in node.function.decorators)
    if isinstance(node, ir.ClassDef):
        return not any(may_register(project, unit, each) for each in node.decorators)
    if isinstance(node, (ir.Import, ir.ImportFrom)):
        return _imports_quietly(project, unit, node)
    if isinstance(node, ir.Assign):
        named = all(isinstance(target, ir.Name) for target in node.targets)
        return named and _is_quiet(project, unit, node.value)
    if isinstance(node, ir.If):
        inner = (*node.body, *node.orelse)
        quiet = _is_quiet(project, unit, node.test)
        return quiet and all(_can_wait(project, unit, each) for each in inner)
    if isinstance(node, ir.Try):
        handled = [each for handler in node.handlers for each in handler.body]
        inner = (*node.body, *handled, *node.orelse, *node.final)
        return all(_can_wait(project, unit, each) for each in inner)
    return isinstance(node, ir.Pass)


def _is_quiet(project: Project, unit: Unit, value: ir.Expr) -> bool:
    nodes = list(ir.walk(value))
    if any(isinstance(node, ir.NamedExpr) for node in nodes):
        return False
    calls = [node for node in nodes if isinstance(node, ir.Call)]
    return not any(may_register(project, unit, call) for call in calls if _hands_on(unit, call))


def _imports_quietly(project: Project, unit: Unit, node: ir.Import | ir.ImportFrom) -> bool:
    """Whether importing a file is of no use but for the names that it takes."""
    if isinstance(node, ir.Import):
        return all(unit.reads_from(alias or name.split(".")[0]) for name, alias in node.names)
    found = project.find(node.module, node.level, unit)
    sketch = None if found is None else project.units.get(found.as_posix())
    return bool(node.names) and (sketch is None or not registers(project, sketch))


def _hands_on(unit: Unit, call: ir.Call) -> bool:
    """Whether a call is given a function or class of the module."""
    names, _ = identifiers(*(argument.value for argument in call.args))
    return not names.isdisjoint(
        name for name, definition in unit.definitions.items() if definition.kind != "variable"
    )
