"""The values that an expression can have where a statement runs, as far as the text shows.

`possible` returns all of them, or None if one of them is unknown, so that `always` is false then.
Inside, an unknown value is an `UnknownError`, which ends the evaluation of the whole expression.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from fsdplint.engine import ir
from fsdplint.engine.interpreter.events import Shard
from fsdplint.engine.interpreter.values import ClassValue, Symbol
from fsdplint.engine.must import classes
from fsdplint.engine.must.definitions import (
    UNBOUND,
    Unbound,
    binders,
    falls_through,
    reaching,
    targets,
)
from fsdplint.engine.must.references import UnknownError, callers, matching
from fsdplint.engine.program import Program
from fsdplint.engine.project.exports import names_brought
from fsdplint.engine.project.unit import Definition, Unit
from fsdplint.knowledge.calls import RETURNS_SELF, RETURNS_THE_SAME
from fsdplint.knowledge.data import ATTRIBUTES_BY_ARGUMENT, IN_ORDER
from fsdplint.knowledge.modules import CONTAINERS, makes_module
from fsdplint.knowledge.names import canonical

MAX_EVALUATIONS = 2_000
# Methods that iterate over the modules in a module, and functions that iterate over their argument.
_MODULE_ITERATORS = frozenset(
    {"children", "modules", "named_children", "named_modules", "values", "items"}
)
_ITERATES = IN_ORDER | {"reversed"}
_PAIRS = frozenset({"enumerate", "items", "named_children", "named_modules"})
_UNBOUND_METHODS = frozenset({"staticmethod", "classmethod"})


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant."""

    value: object


@dataclass(frozen=True, slots=True)
class Library:
    """A function, a class or a module of a library, by its canonical name."""

    name: str


@dataclass(frozen=True, slots=True)
class Own:
    """A function or class of the project."""

    definition: Definition


@dataclass(frozen=True, slots=True)
class OwnModule:
    """A file of the project as a module object."""

    unit: Unit


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one ``call`` of the function or class ``name`` of a library."""

    name: str
    path: str
    call: ir.Call


@dataclass(frozen=True, slots=True)
class Instance:
    """An object of a class of the project, or of one that is derived from it."""

    cls: Definition


@dataclass(frozen=True, slots=True)
class SomeModule:
    """A ``torch.nn.Module`` whose class is not known."""


Known = SomeModule | Literal | Library | Own | OwnModule | Result | Instance | Unbound
Values = frozenset[Known]


def possible(program: Program, path: str, expression: str | ir.Expr, at: ir.Stmt) -> Values | None:
    """Return the values that an expression can have just before ``at`` runs, None if unknown.

    `Unbound` is among them if reading the expression may raise NameError or AttributeError.

    Args:
        expression: a node, or dotted names.
    """
    try:
        evaluation = _Evaluation(program)
        if isinstance(expression, str):
            return evaluation.dotted(path, expression, at)
        return evaluation.expression(path, expression, at)
    except UnknownError:
        return None


def always(
    program: Program,
    path: str,
    expression: str | ir.Expr,
    at: ir.Stmt,
    claim: Callable[[Known], bool],
) -> bool:
    """True if ``claim`` holds for every value of an expression just before ``at`` runs."""
    values = possible(program, path, expression, at)
    return bool(values) and all(map(claim, values or ()))


def is_module(program: Program, value: Known) -> bool:
    """True if a value is surely a ``torch.nn.Module``.

    A class is one of modules if the program shards an object of it: no sharding call takes others.
    """
    if isinstance(value, Result):
        return makes_module(value.name) or value.name in _sharded_classes(program)
    if isinstance(value, Instance):
        bases = classes.lineage(program, value.cls)
        known = bases is not None and any(map(makes_module, bases[1]))
        return known or classes.node_of(value.cls) in _sharded_classes(program)
    return isinstance(value, SomeModule)


def _sharded_classes(program: Program) -> set[object]:
    """Return the classes of sharded objects: canonical names, and nodes of project classes."""
    made = [shard.module.cls for trace in program.traces for shard in trace.of(Shard)]
    own: set[object] = {cls.node for cls in made if isinstance(cls, ClassValue)}
    named = [cls.name for cls in made if isinstance(cls, Symbol)]
    return own | {name for name in named if name.rpartition(".")[2][:1].isupper()}


def is_bound(program: Program, path: str, name: str, at: ir.Stmt) -> bool:
    """True if a variable, or an attribute of ``self``, has some value whenever ``at`` runs."""
    tree = program.tree(path)
    first, _, attribute = name.partition(".")
    scope = tree.scope(at)
    before = reaching(tree, scope, name, at).before
    if before and UNBOUND not in before:
        return True
    if attribute:
        parameters = [
            each for each in binders(tree, scope, first) if isinstance(each, ir.Parameter)
        ]
        function = tree.function(parameters[0]) if parameters else None
        cls = None if function is None else classes.owner(program, path, function)
        plain = cls is not None and function is not None and "." not in attribute
        own = plain and function is not None and function.parameters[0] is parameters[0]
        return own and cls is not None and classes.always_sets(program, cls, attribute)
    for outer in tree.ancestors(scope) if not binders(tree, scope, first) else ():
        if isinstance(outer, (ir.Function, ir.Module)) and binders(tree, outer, first):
            return UNBOUND not in reaching(tree, outer, first, None).at_end
    return False


class _Evaluation:
    """The evaluation of one expression, within a budget of `MAX_EVALUATIONS` nodes.

    Attributes:
        active: the expressions being evaluated; one that depends on itself, as in a loop, adds no
            values to those that it starts from, so it evaluates to the empty set inside itself.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.active: set[tuple[object, ...]] = set()
        self.evaluations = 0

    def dotted(self, path: str, text: str, at: ir.Stmt) -> Values:
        first, *attributes = text.split(".")
        values = self.name(path, first, at)
        for index, attribute in enumerate(attributes):
            read = ".".join((first, *attributes[: index + 1]))
            values = self.attributes(path, values, attribute, read, at)
        return values

    def expression(self, path: str, node: ir.Expr, at: ir.Stmt) -> Values:
        key = (path, node, at)
        self.evaluations += 1
        if self.evaluations > MAX_EVALUATIONS:
            raise UnknownError
        if key in self.active:
            return frozenset()
        self.active.add(key)
        try:
            return self._expression(path, node, at)
        finally:
            self.active.discard(key)

    def _expression(self, path: str, node: ir.Expr, at: ir.Stmt) -> Values:
        """Evaluate an expression by its kind; kinds without a case are unknown."""
        match node:
            case ir.Constant(value=value):
                return frozenset({Literal(value)})
            case ir.Name(id=name) if not self._is_of_comprehension(path, node):
                return self.name(path, name, at)
            case ir.Conditional(body=one, orelse=other) | ir.BoolOp(left=one, right=other):
                return self.expression(path, one, at) | self.expression(path, other, at)
            case ir.NamedExpr(value=inner):
                return self.expression(path, inner, at)
            case ir.Attribute(value=owner, attr=attr):
                read = self.program.tree(path).slice(node)
                return self.attributes(path, self.expression(path, owner, at), attr, read, at)
            case ir.Call():
                return self.call(path, node, at)
            case ir.Subscript(value=container):
                return self.elements(path, container, at)
        raise UnknownError

    # Modules in containers, which contain nothing else

    def elements(self, path: str, node: ir.Expr, at: ir.Stmt) -> Values:
        """Return the elements of a container of modules: modules of unknown classes."""
        held = self.expression(path, node, at)
        if not all(isinstance(each, Result) and each.name in CONTAINERS for each in held):
            raise UnknownError
        return frozenset({SomeModule()} if held else ())

    def loop_variable(
        self, path: str, target: ir.Expr, node: ir.Expr, name: str, at: ir.Stmt
    ) -> Values:
        """Return the values of the variable ``name`` in a loop over ``node``."""
        function = ir.last_name(node.func) if isinstance(node, ir.Call) else ""
        if function in _PAIRS and isinstance(target, ir.Collection):
            target = target.elements[-1]
        if isinstance(node, ir.Call) and function in _ITERATES and node.args:
            return self.loop_variable(path, target, node.args[0].value, name, at)
        if self.program.tree(path).slice(target) != name:
            raise UnknownError
        match node:
            case ir.Call(func=ir.Attribute(value=owner), args=()) if function in _MODULE_ITERATORS:
                owners = self.expression(path, owner, at)
                if owners and all(is_module(self.program, each) for each in owners):
                    return frozenset({SomeModule()})
            case ir.Call():
                pass
            case _:
                return self.elements(path, node, at)
        raise UnknownError

    def _is_of_comprehension(self, path: str, name: ir.Name) -> bool:
        """True if a name is a variable of a comprehension or a lambda around it."""
        for around in self.program.tree(path).ancestors(name):
            if isinstance(around, ir.Comprehension):
                targets = (n for clause in around.clauses for n in ir.walk(clause.target))
                if any(isinstance(each, ir.Name) and each.id == name.id for each in targets):
                    return True
            elif isinstance(around, ir.Lambda):
                return any(each.name == name.id for each in around.function.parameters)
            elif isinstance(around, ir.Function):
                break
        return False

    # Variables

    def name(self, path: str, name: str, at: ir.Stmt) -> Values:
        """Return the values of a variable: of a scope, a star import or a builtin."""
        tree = self.program.tree(path)
        scope = tree.scope(at)
        if tree.looks_up_variables or name in tree.shared:
            raise UnknownError
        if binders(tree, scope, name):
            before = reaching(tree, scope, name, at).before
            return self.union(self.definition(path, each, name) for each in before)
        for outer in tree.ancestors(scope) if scope is not tree.module else ():
            if isinstance(outer, (ir.Function, ir.Module)) and binders(tree, outer, name):
                return self.outer(path, outer, name)
        unit = self.program.project.sketch(Path(path))
        for module, level in reversed(unit.imports.stars) if unit is not None else ():
            if found := self.starred(path, module, level, name):
                return found
        if hasattr(builtins, name):
            return frozenset({Library(f"builtins.{name}")})
        raise UnknownError

    def starred(self, path: str, module: str, level: int, name: str) -> Values:
        """Return what ``from module import *`` binds a name to; nothing if it does not."""
        unit = self.program.project.sketch(Path(path))
        found = None if unit is None else self.program.project.find(module, level, unit)
        if found is None:
            brought = names_brought(module, level)
            if not brought:
                raise UnknownError
            given = {Library(canonical(f"{module}.{name}"))} if name in brought else ()
            return frozenset(given)
        if self.program.project.unit(found) in (None, unit):
            raise UnknownError
        tree = self.program.tree(found.as_posix())
        bound = binders(tree, tree.module, name)
        return self.outer(tree.path, tree.module, name) if bound else frozenset()

    def outer(self, path: str, scope: ir.Function | ir.Module, name: str) -> Values:
        """Return the values of a variable of an outer scope, which may be read at any time."""
        tree = self.program.tree(path)
        if isinstance(scope, ir.Module) and self._is_set_elsewhere(path, name):
            raise UnknownError
        end = reaching(tree, scope, name, None).at_end
        missing = [each for each in end if isinstance(each, Unbound)]
        found: list[ir.Node | Unbound] = [*binders(tree, scope, name), *missing]
        return self.union(self.definition(path, each, name) for each in found)

    def _is_set_elsewhere(self, path: str, name: str) -> bool:
        """True if another file assigns to ``module.name``."""
        for unit in matching(self.program, rf"\.\s*{name}\s*[-+*/|&]?=(?!=)", name):
            tree = self.program.tree(unit.path)
            for node in tree.walk(name):
                for each in targets(node) if node is not tree.module else ():
                    owner = each.value if isinstance(each, ir.Attribute) else None
                    if owner is None or ir.last_name(each) != name:
                        continue
                    module = self.program.project.module(unit, tree.slice(owner))
                    if module is not None and module.path == path:
                        return True
        return False

    def definition(self, path: str, node: ir.Node | Unbound, name: str) -> Values:
        """Return the values that one definition of a variable gives it."""
        match node:
            case Unbound():
                return frozenset({node})
            case ir.Parameter():
                return self.parameter(path, node)
            case ir.Assign():
                return self.assigned(path, node, name)
            case ir.NamedExpr(value=value):
                return self.expression(path, value, self.program.tree(path).statement(node))
            case ir.ImportFrom(names=()):
                return self.starred(path, node.module, node.level, name)
            case ir.Import() | ir.ImportFrom():
                return self.imported(path, node, name)
            case ir.FunctionDef() | ir.ClassDef():
                return self.own(path, node, name)
            case ir.For(target=target, iterable=iterable):
                return self.loop_variable(path, target, iterable, name, node)
        raise UnknownError

    def assigned(self, path: str, node: ir.Assign, name: str) -> Values:
        tree = self.program.tree(path)
        if any(tree.slice(target) == name for target in node.targets):
            return self.expression(path, node.value, node)
        for target in node.targets:
            if isinstance(target, ir.Collection):
                names = [tree.slice(each) for each in target.elements]
                if name in names and not any(isinstance(e, ir.Starred) for e in target.elements):
                    place = names.index(name), len(names)
                    return self.item(path, node.value, place, node)
        raise UnknownError

    def item(self, path: str, node: ir.Expr, place: tuple[int, int], at: ir.Stmt) -> Values:
        """Return one of ``count`` elements of a display, or of the result of a project function.

        Args:
            place: the index of the element, and the count.
        """
        index, count = place
        if isinstance(node, ir.Collection) and node.kind == "tuple":
            plain = not any(isinstance(each, ir.Starred) for each in node.elements)
            if plain and len(node.elements) == count:
                return self.expression(path, node.elements[index], at)
        if isinstance(node, ir.Call):
            called = self.expression(path, node.func, at)
            return self.union(self.result_item(each, place) for each in called)
        raise UnknownError

    def result_item(self, callee: Known, place: tuple[int, int]) -> Values:
        path, function = self.function(callee)
        returns = self.returns(path, function)
        return self.union(
            self.item(path, node.value, place, node) for node in returns if node.value is not None
        )

    def own(self, path: str, node: ir.Node, name: str) -> Values:
        unit = self.program.project.unit(Path(path))
        found = None if unit is None else unit.definitions.get(name)
        if found is None or found.unit.node(found) is not node:
            raise UnknownError
        return frozenset({Own(found)})

    def imported(self, path: str, node: ir.Import | ir.ImportFrom, name: str) -> Values:
        """Return what an import statement binds a name to."""
        unit = self.program.project.sketch(Path(path))
        assert unit is not None
        if isinstance(node, ir.Import):
            of_name = ((m, alias) for m, alias in node.names if name in (alias, m.split(".")[0]))
            module, alias = next(of_name)
            module = module if alias else name
            found = self.program.project.find(module, 0, unit)
            return frozenset({Library(canonical(module)) if found is None else self.module(found)})
        member = next((m for m, alias in node.names if name == (alias or m)), None)
        if member is None:
            raise UnknownError
        return self.member(unit, node.module, node.level, member)

    def member(self, unit: Unit, module: str, level: int, member: str) -> Values:
        """Return what ``from module import member`` binds."""
        find = self.program.project.find
        found = find(module, level, unit)
        if found is not None and self.program.project.unit(found) not in (None, unit):
            tree = self.program.tree(found.as_posix())
            if binders(tree, tree.module, member):
                return self.outer(tree.path, tree.module, member)
        inner = find(f"{module}.{member}" if module else member, level, unit)
        if inner is not None:
            return frozenset({self.module(inner)})
        if found is not None or level:
            raise UnknownError
        return frozenset({Library(canonical(f"{module}.{member}"))})

    def module(self, path: Path) -> OwnModule:
        unit = self.program.project.unit(path)
        if unit is None:
            raise UnknownError
        return OwnModule(unit)

    def parameter(self, path: str, node: ir.Parameter) -> Values:
        """Return what every call of the function passes for a parameter, or its default."""
        tree = self.program.tree(path)
        function = tree.function(node)
        if function is None or node.kind.startswith("*"):
            raise UnknownError
        cls = classes.owner(self.program, path, function)
        if cls is not None and function.parameters[0] is node:
            if any(ir.last_name(each) in _UNBOUND_METHODS for each in function.decorators):
                raise UnknownError
            return frozenset({Instance(cls)})
        found = callers(self.program, path, function)
        if found is None:
            raise UnknownError
        position = function.parameters.index(node) - (cls is not None)
        if node.kind != "positional":
            position = len(function.parameters)
        return self.union(
            self.given(each.path, each.call, (position, node.name), node.default) for each in found
        )

    def given(
        self,
        path: str,
        call: ir.Call,
        parameter: tuple[int, str],
        default: ir.Expr | None,
    ) -> Values:
        """Return what a call passes for a parameter, by position or by name."""
        if any(argument.star for argument in call.args):
            raise UnknownError
        position, name = parameter
        plain = [argument for argument in call.args if argument.keyword is None]
        named = [argument for argument in call.args if argument.keyword == name]
        chosen = named or plain[position : position + 1]
        if chosen:
            at = self.program.tree(path).statement(call)
            return self.expression(path, chosen[0].value, at)
        if isinstance(default, ir.Constant):
            return frozenset({Literal(default.value)})
        raise UnknownError

    # Attributes

    def attributes(self, path: str, owners: Values, name: str, read: str, at: ir.Stmt) -> Values:
        return self.union(self.attribute(path, each, name, read, at) for each in owners)

    def attribute(self, path: str, owner: Known, name: str, read: str, at: ir.Stmt) -> Values:
        """Return the values of the attribute ``name`` of one value; ``read`` is its expression."""
        match owner:
            case Library(name=library):
                return frozenset({Library(canonical(f"{library}.{name}"))})
            case OwnModule(unit=unit):
                return self.member(unit, Path(unit.path).stem, 1, name)
            case Result() if found := ATTRIBUTES_BY_ARGUMENT.get((owner.name, name)):
                return self.argument(owner, (found[0], name), found[1])
            case Instance():
                return self.stored(path, owner, name, read, at)
            case Unbound():
                return frozenset({owner})
        raise UnknownError

    def argument(self, owner: Result, parameter: tuple[int, str], otherwise: str) -> Values:
        """Return what a constructor was given, or an ``otherwise`` object instead of None."""
        made = Result(otherwise, owner.path, owner.call)
        none = ir.Constant(owner.call.start, owner.call.end, None)
        given = self.given(owner.path, owner.call, parameter, none)
        return frozenset(made if value == Literal(None) else value for value in given)

    def stored(self, path: str, owner: Instance, name: str, read: str, at: ir.Stmt) -> Values:
        """Return everything that the project stores in an attribute of a class's objects."""
        stores = classes.stores(self.program, owner.cls, name)
        if stores is None:
            raise UnknownError
        found = self.union(self.expression(p, value, node) for p, value, node in stores)
        tree = self.program.tree(path)
        before = reaching(tree, tree.scope(at), read, at).before
        if not any(isinstance(each, Unbound) for each in before):
            return found
        return found if classes.always_sets(self.program, owner.cls, name) else found | {UNBOUND}

    # Calls

    def call(self, path: str, node: ir.Call, at: ir.Stmt) -> Values:
        """Return the results of a call, by each value that its callee or receiver can have."""
        if isinstance(node.func, ir.Attribute):
            owners, attr = self.expression(path, node.func.value, at), node.func.attr
            if attr in RETURNS_SELF and all(isinstance(e, (Result, Instance)) for e in owners):
                return owners
            if owners and all(isinstance(each, Instance) for each in owners):
                methods = (self.method(each, attr) for each in owners)
                return self.union(self.result(path, each, node) for each in methods)
        called = self.expression(path, node.func, at)
        return self.union(self.result(path, each, node) for each in called)

    def method(self, owner: Known, name: str) -> Own:
        assert isinstance(owner, Instance)
        found = classes.method(self.program, owner.cls, name)
        if found is None:
            raise UnknownError
        return Own(found)

    def result(self, path: str, callee: Known, node: ir.Call) -> Values:
        """Return the result of calling one value: a library's, an instance, or what it returns."""
        if isinstance(callee, Library):
            same = RETURNS_THE_SAME.get(callee.name)
            if same is not None:
                return self.given(path, node, (same, ""), None)
            return frozenset({Result(callee.name, path, node)})
        if isinstance(callee, Own) and callee.definition.kind == "class":
            return frozenset({Instance(callee.definition)})
        where, function = self.function(callee)
        returns = self.returns(where, function)
        found = self.union(
            self.expression(where, each.value, each) for each in returns if each.value is not None
        )
        bare = any(each.value is None for each in returns)
        if bare or falls_through(self.program.tree(where), function):
            found |= {Literal(None)}
        return found

    def function(self, callee: Known) -> tuple[str, ir.Function]:
        """Return the plain function that is called, with its file."""
        definition = callee.definition if isinstance(callee, Own) else None
        node = None if definition is None else definition.unit.node(definition)
        if definition is None or not isinstance(node, ir.FunctionDef):
            raise UnknownError
        if node.function.decorators or node.function.is_generator:
            raise UnknownError
        return definition.unit.path, node.function

    def returns(self, path: str, function: ir.Function) -> list[ir.Return]:
        nodes = self.program.tree(path).nodes_of(function)
        return [node for node in nodes if isinstance(node, ir.Return)]

    @staticmethod
    def union(parts: Iterable[Values]) -> Values:
        return frozenset(value for part in parts for value in part)
