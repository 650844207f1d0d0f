"""The contexts and decorators that decide over gradients, read off the code around a place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fsdplint.engine import ir
from fsdplint.engine.frontend.tree import Tree
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.program import Program

NO_GRADIENTS = frozenset({"no_grad", "inference_mode"})
GRADIENTS = frozenset({"enable_grad", "set_grad_enabled"})


def gradient_mode(program: Program, site: Site) -> str:
    """The name of the nearest such context around ``site`` or a caller, "" where there is none."""
    for place in _contexts(program, site):
        name = _meant(program, place)
        if name in NO_GRADIENTS | GRADIENTS:
            return name
    return ""


def inference_mode(program: Program, site: Site) -> Site | None:
    """The ``torch.inference_mode()`` that surely is on at ``site``.

    ``enable_grad`` inside does not end it.
    """
    for place in _contexts(program, site):
        if _meant(program, place) == "inference_mode" and _is_of_torch(program, place):
            return place if _is_on(place.node) else None
    return None


def _contexts(program: Program, site: Site) -> Iterator[Site]:
    """The contexts and decorators around ``site`` and its callers, the nearest first."""
    frames = site.frames()
    for index in range(len(frames) - 1, -1, -1):
        path, node = frames[index]
        for found in _around(program.tree(path), node):
            yield Site(path, found, frames[:index])


def _around(tree: Tree, node: ir.Node) -> Iterator[ir.Expr]:
    inside = node
    for above in tree.ancestors(node):
        if isinstance(above, ir.With) and inside in above.body:
            yield from reversed(tree.contexts(above))
        if isinstance(above, ir.Function):
            yield from reversed(above.decorators)
            return
        inside = above


def _meant(program: Program, place: Site) -> str:
    """What a context or decorator is called where it is defined, as far as imports say."""
    function = place.node.func if isinstance(place.node, ir.Call) else place.node
    full = program.project.library_name(place.path, function)  # type: ignore[arg-type]  # an Expr
    return full.rpartition(".")[2] or last_called(place.node)


def last_called(expression: ir.Node) -> str:
    """``c`` of ``a.b.c`` and of ``a.b.c()``."""
    return ir.last_name(expression.func if isinstance(expression, ir.Call) else expression)


def _is_of_torch(program: Program, place: Site) -> bool:
    function = place.node.func if isinstance(place.node, ir.Call) else place.node
    while isinstance(function, ir.Attribute):
        function = function.value
    if not isinstance(function, ir.Name):
        return False
    binding = program.project.bindings(Path(place.path)).get(function.id)
    return binding is not None and binding[0].split(".")[0] == "torch"


def _is_on(expression: ir.Node) -> bool:
    if not isinstance(expression, ir.Call) or not expression.args:
        return True
    mode = expression.args[0].value
    return isinstance(mode, ir.Constant) and mode.value is True
