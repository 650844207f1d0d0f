"""Which statements of an imported module can be deferred until a name that they bind is read.

A module is imported for a few of its names. A statement that only binds other names, such as a
definition or a constant, never has to run. A statement with an effect that other code can see has
to run at the import: most often a decorator or a call that registers a function in a table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from fsdplint.engine import ir
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


def registers(project: Project, unit: Unit) -> bool:
    """Whether importing a file registers functions, of its own or of those it imports."""
    if unit not in project.registering:
        reached, queue = {unit}, [unit]
        for each in queue:
            if each.registers or project.registering.get(each):
                project.registering[unit] = True
                break
            queue.extend(fresh := set(_imported(project, each)) - reached)
            reached |= fresh
        else:  # none of them imports one that does, either
            project.registering.update(dict.fromkeys(reached, False))
    return project.registering[unit]


def _imported(project: Project, unit: Unit) -> Iterator[Unit]:
    """The files that are known already of those that a file imports."""
    for module, level, _ in unit.bindings.values():
        found = project.find(module, level, unit)
        inner = None if found is None else project.units.get(found.as_posix())
        if inner is not None:
            yield inner


def may_register(project: Project, unit: Unit, node: ir.Expr) -> bool:
    """Whether code of the project runs for ``node``, which may keep what it is given."""
    names, _ = identifiers(node)
    ours = (name for name in names if project.defines_one(unit, (name,)))
    return not all(_keeps_nothing(project, unit, name) for name in ours)


def _keeps_nothing(project: Project, unit: Unit, name: str) -> bool:
    """Whether a function, by all that it does, can have put nothing anywhere but in its result."""
    definition = project.definition(unit, name)
    if definition is None or definition.kind != "def":
        return False
    if definition not in project.keeps_nothing:
        own = project.unit(Path(definition.unit.path))
        node = None if own is None else own.node(definition)
        project.keeps_nothing[definition] = isinstance(node, ir.FunctionDef) and not _touches(
            project, definition.unit, node
        )
    return project.keeps_nothing[definition]


def _touches(project: Project, unit: Unit, definition: ir.FunctionDef) -> bool:
    """Whether a function stores to, calls or hands on what may be the project's."""
    nodes = list(ir.walk(definition))
    if any(isinstance(node, (ir.Scope, ir.AugAssign, ir.With)) for node in nodes):
        return True
    outside = _Outside(project, unit, nodes)
    stored = [each for node in nodes for each in _targets(node) if not isinstance(each, ir.Name)]
    calls = [node for node in nodes if isinstance(node, ir.Call)]
    roots = [_root(each) for each in (*stored, *map(_changed_by, calls))]
    given = [argument.value for call in calls for argument in call.args]
    named = {each.id for each in (*roots, *given) if isinstance(each, ir.Name)}
    return None in roots or outside.has_one(named)


class _Outside:
    """The names in a function of what may be the project's: its variables may stand for that, too.

    Attributes:
        own: parameters, inner functions and variables.
        aliases: those that are made of something of the project's.
    """

    def __init__(self, project: Project, unit: Unit, nodes: list[ir.Node]) -> None:
        self.project = project
        self.unit = unit
        values = [pair for node in nodes for pair in _bindings(node)]
        self.own = {name for name, _ in values}
        self.aliases: set[str] = set()
        fresh = {""}
        while fresh:
            fresh = {name for name, value in values if value is not None and self._mentions(value)}
            fresh -= self.aliases
            self.aliases |= fresh

    def has_one(self, names: set[str]) -> bool:
        own = self.own - self.aliases
        return any(n in self.aliases or self._is_ours(n) for n in names - own)

    def _mentions(self, value: ir.Expr) -> bool:
        return self.has_one(set(identifiers(value)[0]))

    def _is_ours(self, name: str) -> bool:
        return self.project.defines_one(self.unit, (name,))


def _bindings(node: ir.Node) -> Iterator[tuple[str, ir.Expr | None]]:
    """The names that a function binds, with what they are made of where that is an expression."""
    if isinstance(node, ir.Function):
        yield node.name, None
        yield from ((parameter.name, parameter.default) for parameter in node.parameters)
    value = node.value if isinstance(node, (ir.Assign, ir.NamedExpr)) else None
    value = node.iterable if isinstance(node, ir.For) else value
    yield from ((each.id, value) for each in _targets(node) if isinstance(each, ir.Name))


def _root(node: ir.Expr) -> ir.Name | None:
    """The name that an expression starts with."""
    while isinstance(node, (ir.Attribute, ir.Subscript, ir.Call)):
        node = node.func if isinstance(node, ir.Call) else node.value
    return node if isinstance(node, ir.Name) else None


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
