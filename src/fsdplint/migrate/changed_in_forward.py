"""Parameters that a module changes in its own forward pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fsdplint.engine import ir
from fsdplint.engine.interpreter.events import Shard
from fsdplint.fixes.code import Code
from fsdplint.fixes.names import dotted
from fsdplint.knowledge.modules import PARAMETER
from fsdplint.knowledge.names import NN
from fsdplint.knowledge.tensors import IN_PLACE
from fsdplint.migrate.step import Context, Kept, kept

INSIDE = (
    "in a forward pass, a sharded model has whole copies of its parameters, and changes of them "
    "are lost; change them after the optimizer's step by hand"
)
_DATA, _LAYER = "data", ("weight", "bias")


def changed_in_forward(context: Context) -> Iterator[Kept]:
    """Yield the changes in the methods that the forward of a class leads to.

    The traces do not lead into each forward, so that the text of the class tells.
    """
    if not any(True for trace in context.program.traces for _ in trace.of(Shard)):
        return
    for code in context.codes("def forward"):
        for cls in (node for node in code.walk("class") if isinstance(node, ir.ClassDef)):
            methods = methods_of(code, cls)
            names = set(_parameters(context, code, methods.values()))
            for function in reached_by_forward(methods):
                for node in code.nodes_of(function):
                    if any(_is_parameter(code, each, names) for each in _changed(node)):
                        yield kept(code, node, INSIDE)


def methods_of(code: Code, cls: ir.ClassDef) -> dict[str, ir.Function]:
    """Return the methods that a class defines, by name."""
    return {each.name: each for each in code.functions if code.scope(each) is cls}


def reached_by_forward(methods: dict[str, ir.Function]) -> Iterator[ir.Function]:
    """Yield ``forward`` and the methods that it calls on its object, and so on."""
    names = ["forward"] * ("forward" in methods)
    for name in names:
        yield methods[name]
        called = (dotted(n.func) or "" for n in ir.walk(methods[name]) if isinstance(n, ir.Call))
        own = (each.removeprefix("self.") for each in called if each.startswith("self."))
        names += [each for each in own if each in methods and each not in names]


def _parameters(context: Context, code: Code, methods: Iterable[ir.Function]) -> Iterator[str]:
    """Yield the parameters of a class, and those of its layers, as its methods write them."""
    for function in methods:
        for node in code.nodes_of(function):
            value = node.value if isinstance(node, ir.Assign) else None
            name = context.name(code, value.func) if isinstance(value, ir.Call) else ""
            for target in node.targets if isinstance(node, ir.Assign) else ():
                if name == PARAMETER:
                    yield dotted(target) or ""
                elif name.startswith(f"{NN}."):
                    yield from (f"{dotted(target)}.{each}" for each in _LAYER)


def _changed(node: ir.Node) -> Iterator[ir.Expr]:
    """Yield what a node changes: that whose data it sets, or that a method changes in place."""
    if isinstance(node, ir.Assign):
        targets = (each for each in node.targets if isinstance(each, ir.Attribute))
        yield from (each.value for each in targets if each.attr == _DATA)
    method = node.func if isinstance(node, ir.Call) else None
    if isinstance(method, ir.Attribute) and method.attr in IN_PLACE:
        yield _behind_data(method.value)


def _behind_data(value: ir.Expr) -> ir.Expr:
    return value.value if isinstance(value, ir.Attribute) and value.attr == _DATA else value


def _is_parameter(code: Code, changed: ir.Expr, names: set[str]) -> bool:
    """True for a parameter by name, one that a variable holds, or one that `getattr` finds."""
    if (dotted(changed) or "") in names - {""}:
        return True
    values = code.assigned(changed) if isinstance(changed, ir.Name) else []
    return any((dotted(each) or "") in names - {""} or _is_found(each) for each in values)


def _is_found(value: ir.Expr) -> bool:
    """True for an attribute of an attribute whose name is not known, such as a layer's weight."""
    if not isinstance(value, ir.Call) or dotted(value.func) != "getattr" or not value.args:
        return False
    return isinstance(value.args[0].value, ir.Attribute)
