"""Where a program can start, and how a path from there begins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.engine.interpreter.definitions import instantiate
from fsdplint.engine.interpreter.functions import invoke, open_parameters
from fsdplint.engine.interpreter.live import Live, Reached, attributes, note_live
from fsdplint.engine.interpreter.names import imported_scope, lookup
from fsdplint.engine.interpreter.state import Frame, Group, PathState
from fsdplint.engine.interpreter.values import (
    Arguments,
    ClassValue,
    Const,
    FunctionValue,
    Object,
    Scope,
)
from fsdplint.engine.project.project import Project
from fsdplint.engine.project.unit import Definition, Unit
from fsdplint.finding import TOP_LEVEL


@dataclass(frozen=True, slots=True)
class Driven:
    """Methods of a live object, of which the last is wanted, and how the object comes about."""

    base: Entry
    found: Live
    chain: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a program can start: a file's top level, a function, or a method of a new object.

    Attributes:
        driven: a method of an object that lives on, if it is none of these.
    """

    unit: Unit
    definition: Definition | None = None
    method: Definition | None = None
    driven: Driven | None = None

    @property
    def name(self) -> str:
        if self.driven is not None:
            return f"{self.driven.found.node.name}.{self.driven.chain[-1]}"
        parts = [part.name for part in (self.definition, self.method) if part is not None]
        return ".".join(parts) or TOP_LEVEL


def start(state: PathState, entry: Entry) -> None:
    """Begin a path at an entry."""
    if entry.driven is not None:
        _drive(state, entry.driven)
    elif entry.definition is None:
        scope = Scope({"__name__": Const("__main__")}, None, entry.unit)
        state.group = Group.ABSENT
        state.run(entry.unit.module.body, Frame(scope, entry.unit))
    else:
        _start_definition(state, entry, entry.definition)


def _drive(state: PathState, driven: Driven) -> None:
    """Follow a path until it has created the object, and then only the object's methods."""
    found = driven.found
    state.until = found.node
    try:
        start(state, driven.base)
    except Reached as reached:
        made = reached.made
    else:
        return  # it does not come about any more where a budget is smaller
    # The methods run after the code that the object came about in, not inside of it.
    state.until, state.enumerating, state.on_yield, state.undecided = None, None, None, 0
    state.in_forward.clear()
    state.note_unread_code()
    state.trace.method_code, state.trace.method_start = set(), state.tick()
    for name in driven.chain:
        cls, unit = made.cls, found.units[name]
        method = cls.lookup(name) if isinstance(cls, ClassValue) else None
        if isinstance(method, FunctionValue):
            node, frame = method.function, Frame(imported_scope(state, unit), unit)
            invoke(state, method, open_parameters(state, method, made), {}, frame, node, more=True)


def _start_definition(state: PathState, entry: Entry, definition: Definition) -> None:
    frame = Frame(imported_scope(state, entry.unit), entry.unit)
    value = lookup(state, definition.name, frame.scope)
    node = definition.unit.node(definition)
    if isinstance(value, FunctionValue) and node is not None:
        invoke(state, value, open_parameters(state, value, None), {}, frame, node, more=True)
    elif isinstance(value, ClassValue):
        _start_method(state, entry, value, frame)


def _start_method(state: PathState, entry: Entry, cls: ClassValue, frame: Frame) -> None:
    """Create an object with unknown arguments, and call the method that is the entry."""
    init = cls.lookup("__init__")
    given = (
        open_parameters(state, init, state.unknown())[1:] if isinstance(init, FunctionValue) else []
    )
    made = instantiate(state, cls, Arguments(given, {}, open=True), cls.node, frame)
    if entry.method is None or entry.method.name in _run_by_construction(state.project, cls):
        return
    method, node = cls.lookup(entry.method.name), entry.unit.node(entry.method)
    if isinstance(method, FunctionValue) and node is not None:
        before = attributes(made) if isinstance(made, Object) else None
        invoke(state, method, open_parameters(state, method, made), {}, frame, node, more=True)
        if isinstance(made, Object):
            note_live(state, made, entry.method.name, before)


@dataclass(frozen=True, slots=True)
class _Holder:
    """A function, and the names that the object has in it."""

    unit: Unit
    function: ir.Function
    names: frozenset[str]


def _run_by_construction(project: Project, cls: ClassValue) -> set[str]:
    """Return the constructor and the methods that it runs or may pass on.

    They are no entries of their own, even if this path's constructor does not reach them: to call
    them afterwards would be an order that nothing in the program forces. The search covers project
    functions that are given the object.
    """
    found = {"__init__"}
    queue = list(_method(cls, "__init__"))
    for holder in queue:
        for name in set(_asked_for(holder)) - found:
            found.add(name)
            queue += _method(cls, name)
        queue += [each for each in _handed_on(project, holder) if each not in queue]
    return found


def _method(cls: ClassValue, name: str) -> Iterator[_Holder]:
    method = cls.lookup(name)
    if isinstance(method, FunctionValue) and method.function.parameters:
        yield _holder(method.scope.unit, method.function, method.function.parameters[0].name)


def _holder(unit: Unit, function: ir.Function, parameter: str) -> _Holder:
    """Return a function that gets the object by ``parameter``, with its aliases."""
    names = {parameter}
    for node in ir.walk(function):
        if isinstance(node, ir.Assign) and ir.last_name(node.value) in names:
            names.update(target.id for target in node.targets if isinstance(target, ir.Name))
    return _Holder(unit, function, frozenset(names))


def _asked_for(holder: _Holder) -> Iterator[str]:
    """Yield the attributes of the object that a function reads."""
    for node in ir.walk(holder.function):
        owner = node.value if isinstance(node, ir.Attribute) else None
        if isinstance(node, ir.Attribute) and _is_it(owner, holder):
            yield node.attr


def _is_it(node: ir.Expr | None, holder: _Holder) -> bool:
    return isinstance(node, ir.Name) and node.id in holder.names


def _handed_on(project: Project, holder: _Holder) -> Iterator[_Holder]:
    """Yield the project functions that a function passes the object to."""
    for call in ir.walk(holder.function):
        if not isinstance(call, ir.Call) or not isinstance(call.func, ir.Name):
            continue
        given = [index for index, each in enumerate(call.args) if _is_it(each.value, holder)]
        found = project.function(holder.unit, call.func.id) if given else None
        for index in given if found else ():
            unit, function = found  # type: ignore[misc]  # it is there
            positional = [each.name for each in function.parameters[index:]]
            yield _holder(unit, function, call.args[index].keyword or next(iter(positional), ""))
