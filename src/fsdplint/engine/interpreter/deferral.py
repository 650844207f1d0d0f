"""Which statements of an imported module are deferred until a name that they bind is read.

A module is imported for a few of its names. A statement that only binds other names, such as a
definition or a constant, never has to run. A statement with an effect that other code can see has
to run at the import: most often a decorator or a call that registers a function in a table.

Deferring is an optimization, so every test here errs towards running at once: code of the project
that a decorator or a call runs is taken to keep what it is given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.engine.project.project import Project, identifiers
from fsdplint.engine.project.unit import Deferred, TopLevel, Unit


def top_level(project: Project, unit: Unit) -> TopLevel:
    """Return the statements that an import of ``unit`` runs at once, and the deferred ones."""
    if unit not in project.top_levels:
        project.top_levels[unit] = _top_level(project, unit)
    return project.top_levels[unit]


def _top_level(project: Project, unit: Unit) -> TopLevel:
    """Split the statements of a file; what only runs in a script (`__main__`) is in neither part.

    A statement is deferred only if no other statement binds one of its names: which of two bindings
    a reader sees would depend on the order. Import statements run at once, since the name that they
    bind is only followed when it is read anyway.
    """
    binds = [(node, dict.fromkeys(_binds(node))) for node in unit.module.body]
    bound = Counter(name for _, names in binds for name in names)
    at_once: list[ir.Stmt] = []
    deferred: dict[str, Deferred] = {}
    for node, names in binds:
        alone = names and all(bound[name] == 1 for name in names)
        imports = isinstance(node, (ir.Import, ir.ImportFrom))
        if alone and not imports and _can_wait(project, unit, node):
            deferred.update(dict.fromkeys(names, Deferred(node, tuple(names))))
        elif not (isinstance(node, ir.If) and ir.is_main_guard(node) and not node.orelse):
            at_once.append(node)
    return TopLevel(tuple(at_once), deferred)


def _binds(statement: ir.Node) -> Iterator[str]:
    """Yield the names that a statement binds or deletes in its scope."""
    if isinstance(statement, (ir.FunctionDef, ir.ClassDef)):
        yield from ir.names_bound(statement)
    else:
        for node in ir.walk(statement):
            yield from _bound_by(node)


def _bound_by(node: ir.Node) -> Iterator[str]:
    """Yield the names that a node itself binds."""
    targets: tuple[ir.Expr, ...] = ()
    match node:
        case ir.FunctionDef() | ir.ClassDef() | ir.Import() | ir.ImportFrom():
            yield from ir.names_bound(node)
        case ir.Assign() | ir.Delete():
            targets = node.targets
        case ir.AugAssign() | ir.For() | ir.NamedExpr():
            targets = (node.target,)
    yield from identifiers(*targets)[0]


def _can_wait(project: Project, unit: Unit, node: ir.Stmt) -> bool:
    """True if a statement does nothing but bind names."""
    match node:
        case ir.FunctionDef():
            return _only_decorate(project, unit, node.function.decorators)
        case ir.ClassDef():
            return _only_decorate(project, unit, node.decorators)
        case ir.Import():
            return all(unit.reads_from(alias or name.split(".")[0]) for name, alias in node.names)
        case ir.ImportFrom():
            imported = project.loaded_module(unit, node.module, node.level)
            return bool(node.names) and (imported is None or not registers(project, imported))
        case ir.Assign():
            named = all(isinstance(target, ir.Name) for target in node.targets)
            return named and _is_pure(project, unit, node.value)
        case ir.If():
            inner = (*node.body, *node.orelse)
            return _is_pure(project, unit, node.test) and _can_all_wait(project, unit, inner)
        case ir.Try():
            handled = [each for handler in node.handlers for each in handler.body]
            inner = (*node.body, *handled, *node.orelse, *node.final)
            return _can_all_wait(project, unit, inner)
    return isinstance(node, ir.Pass)


def _can_all_wait(project: Project, unit: Unit, nodes: tuple[ir.Stmt, ...]) -> bool:
    return all(_can_wait(project, unit, each) for each in nodes)


def _is_pure(project: Project, unit: Unit, value: ir.Expr) -> bool:
    """True if evaluating ``value`` binds no name and hands no definition to the project's code."""
    nodes = list(ir.walk(value))
    if any(isinstance(node, ir.NamedExpr) for node in nodes):
        return False
    calls = (node for node in nodes if isinstance(node, ir.Call) and _gives_definition(unit, node))
    return not _runs_own_code(project, unit, *calls)


def _gives_definition(unit: Unit, call: ir.Call) -> bool:
    """True if an argument of a call mentions a function or class of the module."""
    names, _ = identifiers(*(argument.value for argument in call.args))
    return not names.isdisjoint(
        name for name, definition in unit.definitions.items() if definition.kind != "variable"
    )


def _only_decorate(project: Project, unit: Unit, decorators: tuple[ir.Expr, ...]) -> bool:
    """True if no decorator hands what it decorates to the project's code, or runs such code."""
    return not any(_keeps(project, unit, each) for each in decorators)


def _keeps(project: Project, unit: Unit, decorator: ir.Expr) -> bool:
    """True if a decorator may keep what it decorates, or its arguments run the project's code."""
    first = decorator.func if isinstance(decorator, ir.Call) else decorator
    while isinstance(first, ir.Attribute):
        first = first.value
    if not isinstance(first, ir.Name) or project.keeps(unit, first.id):
        return True
    given = [each.value for each in decorator.args] if isinstance(decorator, ir.Call) else []
    if project.is_of_library(unit, first.id):  # which calls none of them now
        nodes = (node for each in given for node in ir.walk(each))
        given = [node.func for node in nodes if isinstance(node, ir.Call)]
    return _runs_own_code(project, unit, *given)


def _runs_own_code(project: Project, unit: Unit, *nodes: ir.Expr) -> bool:
    """True if evaluating ``nodes`` may run code of the project, which may keep what it is given."""
    return project.defines_one(unit, identifiers(*nodes)[0])


def registers(project: Project, unit: Unit) -> bool:
    """True if importing a file registers functions: its own, or those of files that it imports."""
    if unit not in project.registering:
        reached, queue = {unit}, [unit]
        for each in queue:
            if each.registers or project.registering.get(each):
                project.registering[unit] = True
                break
            queue.extend(fresh := set(_imported(project, each)) - reached)
            reached |= fresh
        else:  # every file that was reached imports a part of these only
            project.registering.update(dict.fromkeys(reached, False))
    return project.registering[unit]


def _imported(project: Project, unit: Unit) -> Iterator[Unit]:
    """Yield the files that a file imports, of those that are loaded already."""
    for module, level, _ in unit.bindings.values():
        inner = project.loaded_module(unit, module, level)
        if inner is not None:
            yield inner
