"""Where a one-GPU program builds optimizers, and what its models are called there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.fixes.arguments import argument_of
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.names import dotted
from fsdplint.knowledge.names import is_optimizer
from fsdplint.migrate.step import Context

_LISTS = frozenset({"parameters", "named_parameters"})


@dataclass(frozen=True, slots=True)
class Anchor:
    """A statement before which a model has to be sharded.

    Attributes:
        use: the expression that takes the model's parameters, or leads there.
        model: the text of the model.
    """

    code: Code
    use: ir.Node
    model: str

    @property
    def statement(self) -> ir.Stmt:
        return self.code.statement(self.use)


def optimizers(context: Context) -> Iterator[tuple[Code, ir.Call]]:
    """Yield each construction of an optimizer."""
    for code in context.codes("optim", "Optim", "Adam", "SGD", "Lion"):
        for node in ir.walk(code.module):
            if isinstance(node, ir.Call) and is_optimizer(context.name(code, node.func)):
                yield code, node


def anchors(context: Context, code: Code, optimizer: ir.Call) -> list[Anchor]:
    """Return the anchor of each model whose parameters ``optimizer`` gets.

    Raises:
        NoFixError: it is not known which models these are.
    """
    given = argument_of(optimizer, 0, "params")
    captures = [] if given is None else list(_captures(code, given.value, 0))
    found = [_outermost(context, code, capture) for capture in captures]
    if not found:
        raise NoFixError(
            "it does not show of which model these parameters are; call `fully_shard` on the model "
            "before this by hand"
        )
    return found


def _captures(code: Code, value: ir.Node, depth: int) -> Iterator[ir.Call]:
    """Yield the calls of ``model.parameters()`` that ``value`` is made of."""
    for node in ir.walk(value):
        if isinstance(node, ir.Call) and ir.last_name(node.func) in _LISTS:
            yield node
        elif isinstance(node, ir.Name) and depth < 4:
            for assigned in code.assigned(node):
                if assigned.start < value.start:
                    yield from _captures(code, assigned, depth + 1)


def _outermost(context: Context, code: Code, capture: ir.Call) -> Anchor:
    """Return the anchor of a capture in the outermost function that surely has the model."""
    assert isinstance(capture.func, ir.Attribute)
    name, use = dotted(capture.func.value), capture
    for _ in range(4):
        if name is None:
            break
        callers = _callers(context, code, use, name)
        if len(callers) != 1:
            break
        code, use, name = callers[0]
    if name is None or name == "self" or name.removeprefix("self.").count("."):
        raise NoFixError(
            f"`{code.short(use)}` does not name a whole model; call `fully_shard` on the model "
            "before this by hand"
        )
    return Anchor(code, use, name)


def _callers(
    context: Context, code: Code, use: ir.Node, name: str
) -> list[tuple[Code, ir.Call, str | None]]:
    """Return the calls that give the function of ``use`` its parameter ``name``."""
    function = code.function(use)
    parameters = [] if function is None else function.parameters
    positional = [each.name for each in parameters if each.kind == "positional"]
    if function is None or name not in positional:
        return []
    method = isinstance(code.scope(function), ir.ClassDef)
    found = []
    for other in context.codes(function.name):
        for node in ir.walk(other.module):
            if not isinstance(node, ir.Call) or ir.last_name(node.func) != function.name:
                continue
            if isinstance(node.func, ir.Attribute) == method:
                found.append((other, node, _given(node, positional, name, method)))
    return found


def _given(call: ir.Call, positional: list[str], name: str, method: bool) -> str | None:
    index = positional.index(name)
    if method and index == 0:
        return dotted(call.func.value) if isinstance(call.func, ir.Attribute) else None
    argument = argument_of(call, index - method, name)
    return None if argument is None else dotted(argument.value)
