"""Where a fix can stand: the function that two places have in common, and what each is in it."""

from __future__ import annotations

from collections.abc import Iterable

from fsdplint.engine import ir
from fsdplint.engine.frontend.tree import Tree
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import Parameters
from fsdplint.engine.program import Program


def common_frame(first: Site, second: Site) -> tuple[str, ir.Node, ir.Node] | None:
    """The deepest function active at both sites: its file, and the two nodes in it.

    A node is the site's own where the site stands in that function, else the call that leads to it.
    """
    for (path, a), (other, b) in zip(first.frames(), second.frames(), strict=False):
        if path != other:
            return None
        if a is not b:
            return path, a, b
    return None


def nodes_in_frame(captures: Iterable[Parameters], site: Site, node: ir.Node) -> list[ir.Node]:
    """The places, in the function where ``node`` leads to ``site``, that took ``captures``."""
    frames = site.frames()
    depth = next(index for index, (_, each) in enumerate(frames) if each is node)
    found = []
    for capture in captures:
        steps = capture.source.frames()
        if steps[:depth] == frames[:depth] and len(steps) > depth and steps[depth][1] is not node:
            found.append(steps[depth][1])
    return found


def name_in(program: Program, made: Site, path: str, use: ir.Node) -> str | None:
    """The variable that holds what is made at a place, in the function of a later node of it.

    None unless each function on the way returns it, and nothing else.
    """
    tree = program.tree(path)
    frames = made.frames()
    for index, (frame, node) in enumerate(frames):
        if frame != path or isinstance(node, (ir.FunctionDef, ir.ClassDef)):
            continue
        if tree.scope(node) is not tree.scope(use) or node.end > use.start:
            continue
        passed = all(_is_returned(program.tree(p), n) for p, n in frames[index + 1 :])
        return _bound(tree, node) if passed else None
    return None


def _bound(tree: Tree, node: ir.Node) -> str | None:
    """The variable, or the attribute of one, that a call is assigned to as it is."""
    statement = tree.statement(node)
    if not isinstance(statement, ir.Assign) or statement.value is not node:
        return None
    target = statement.targets[0]
    simple = isinstance(target, ir.Name) or (
        isinstance(target, ir.Attribute) and isinstance(target.value, ir.Name)
    )
    return tree.slice(target) if simple and len(statement.targets) == 1 else None


def _is_returned(tree: Tree, node: ir.Node) -> bool:
    """Whether the function around a call can only return its result."""
    function = tree.function(node)
    if function is None:
        return False
    values = [each.value for each in tree.nodes_of(function) if isinstance(each, ir.Return)]
    name = _bound(tree, node)
    written = [
        target
        for each in tree.nodes_of(function)
        if isinstance(each, ir.Assign)
        for target in each.targets
        if tree.slice(target) == name
    ]
    return bool(values) and all(
        value is node or (value is not None and len(written) == 1 and tree.slice(value) == name)
        for value in values
    )
