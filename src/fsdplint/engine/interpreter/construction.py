"""Which methods of an object run when it is made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.engine.interpreter.values import ClassValue, FunctionValue
from fsdplint.engine.project.project import Project
from fsdplint.engine.project.unit import Unit


@dataclass(frozen=True, slots=True)
class _Holder:
    """A function, and the names that the object has in it."""

    unit: Unit
    function: ir.Function
    names: frozenset[str]


def run_by_construction(project: Project, cls: ClassValue) -> set[str]:
    """The constructor and the methods that it asks the object for, which nobody calls once more.

    So do these methods, and functions of the project that are handed the object.
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
    """A function that is handed the object by ``parameter``."""
    names = {parameter}
    for node in ir.walk(function):
        if isinstance(node, ir.Assign) and ir.last_name(node.value) in names:
            names.update(target.id for target in node.targets if isinstance(target, ir.Name))
    return _Holder(unit, function, frozenset(names))


def _asked_for(holder: _Holder) -> Iterator[str]:
    for node in ir.walk(holder.function):
        owner = node.value if isinstance(node, ir.Attribute) else None
        if isinstance(node, ir.Attribute) and _is_it(owner, holder):
            yield node.attr


def _is_it(node: ir.Expr | None, holder: _Holder) -> bool:
    return isinstance(node, ir.Name) and node.id in holder.names


def _handed_on(project: Project, holder: _Holder) -> Iterator[_Holder]:
    for call in ir.walk(holder.function):
        if not isinstance(call, ir.Call) or not isinstance(call.func, ir.Name):
            continue
        given = [index for index, each in enumerate(call.args) if _is_it(each.value, holder)]
        found = project.function(holder.unit, call.func.id) if given else None
        for index in given if found else ():
            unit, function = found  # type: ignore[misc]  # it is there
            positional = [each.name for each in function.parameters[index:]]
            yield _holder(unit, function, call.args[index].keyword or next(iter(positional), ""))
