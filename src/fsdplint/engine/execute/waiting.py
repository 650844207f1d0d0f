"""What of an imported module's top level can wait until a name that it binds is read.

A module is imported for a few of its names. What binds the others, and does nothing else, need
never run: a definition, or a variable of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from fsdplint.engine import ir
from fsdplint.engine.link import Project, identifiers
from fsdplint.engine.unit import TopLevel, Unit, Waiting


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
        else:
            at_once.append(node)
    return TopLevel(tuple(at_once), waiting)


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
        return not any(_may_register(project, unit, each) for each in node.function.decorators)
    if isinstance(node, ir.ClassDef):
        return not any(_may_register(project, unit, each) for each in node.decorators)
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
    return not any(_may_register(project, unit, call) for call in calls if _hands_on(unit, call))


def _imports_quietly(project: Project, unit: Unit, node: ir.Import | ir.ImportFrom) -> bool:
    """Whether importing a file is of no use but for the names that it takes."""
    if isinstance(node, ir.Import):
        return all(unit.reads_from(alias or name.split(".")[0]) for name, alias in node.names)
    found = project.find(node.module, node.level, unit)
    sketch = None if found is None else project.units.get(found.as_posix())
    return bool(node.names) and (sketch is None or not registers(project, sketch))


def registers(project: Project, unit: Unit) -> bool:
    """Whether importing a file registers functions, of its own or of a file it imports."""
    if unit not in project.registering:
        found = {project.find(m, level, unit) for m, level, _ in unit.bindings.values()}
        inner = [project.units.get(each.as_posix()) for each in found if each is not None]
        some = any(each is not None and each.registers for each in inner)
        project.registering[unit] = unit.registers or some
    return project.registering[unit]


def _may_register(project: Project, unit: Unit, node: ir.Expr) -> bool:
    """Whether code of the project runs, which may note what it is given."""
    names, _ = identifiers(node)
    ours = (name for name in names if project.defines_one(unit, [name]))
    return not all(_keeps_nothing(project, unit, name) for name in ours)


def _keeps_nothing(project: Project, unit: Unit, name: str) -> bool:
    """Whether a function, by all that it does, can have put nothing anywhere but in its result."""
    definition = project.definition(unit, name)
    if definition is None or definition.kind != "def":
        return False
    if definition not in project.keeps_nothing:
        own = project.unit(Path(definition.unit.path))
        node = None if own is None else own.node(definition)
        keeps = not isinstance(node, ir.FunctionDef) or _keeps_some(project, definition.unit, node)
        project.keeps_nothing[definition] = not keeps
    return project.keeps_nothing[definition]


def _keeps_some(project: Project, unit: Unit, definition: ir.FunctionDef) -> bool:
    nodes = list(ir.walk(definition.function))
    stored_to = [target for node in nodes for target in _targets(node)]
    own = {target.id for target in stored_to if isinstance(target, ir.Name)}
    functions = [node for node in nodes if isinstance(node, ir.Function)]
    own.update(p.name for function in functions for p in function.parameters)
    own.update(function.name for function in functions)
    if any(isinstance(node, (ir.Scope, ir.AugAssign)) for node in nodes):
        return True
    touched: list[ir.Expr] = [each for each in stored_to if not isinstance(each, ir.Name)]
    touched.extend(_changed_by(node) for node in nodes if isinstance(node, ir.Call))
    return any(_is_elsewhere(project, unit, each, own) for each in touched)


def _changed_by(call: ir.Call) -> ir.Expr:
    """What a call may change; of a method what it is called on."""
    sets = isinstance(call.func, ir.Name) and call.func.id == "setattr" and bool(call.args)
    return call.args[0].value if sets else call.func


def _targets(node: ir.Node) -> Iterator[ir.Expr]:
    """What a statement assigns to, each of several apart."""
    targets = list(node.targets) if isinstance(node, ir.Assign) else []
    targets += [node.target] if isinstance(node, (ir.For, ir.NamedExpr)) else []
    while targets:
        target = targets.pop()
        if isinstance(target, ir.Collection):
            targets += target.elements
        elif isinstance(target, ir.Starred):
            targets.append(target.value)
        else:
            yield target


def _is_elsewhere(project: Project, unit: Unit, node: ir.Expr, own: set[str]) -> bool:
    """Whether what is called or stored to may be the project's, and not the function's own."""
    while isinstance(node, (ir.Attribute, ir.Subscript, ir.Call)):
        node = node.func if isinstance(node, ir.Call) else node.value
    if not isinstance(node, ir.Name):
        return True
    return node.id not in own and project.defines_one(unit, (str(node.id),))


def _hands_on(unit: Unit, call: ir.Call) -> bool:
    """Whether a call is given a function or class of the module."""
    names, _ = identifiers(*(argument.value for argument in call.args))
    return not names.isdisjoint(
        name for name, definition in unit.definitions.items() if definition.kind != "variable"
    )
