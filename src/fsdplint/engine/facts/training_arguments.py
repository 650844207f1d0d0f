"""Calls that make transformers' training arguments, with the settings of FSDP that they hold."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.configs.nodes import UNKNOWN, Entry, Mapping, Node, Scalar, Sequence
from fsdplint.configs.trainer import SECTION, TrainerSettings, settings_of
from fsdplint.engine import ir
from fsdplint.engine.frontend.tree import Tree
from fsdplint.engine.program import Program
from fsdplint.knowledge.frameworks import is_training_arguments
from fsdplint.knowledge.transformers_settings import ARGUMENT, admitted


def training_arguments(program: Program) -> Iterator[TrainerSettings]:
    """Yield the settings of each call whose class is transformers' or trl's own."""
    for tree in program.trees_with(ARGUMENT):
        for node in tree.walk(ARGUMENT):
            if isinstance(node, ir.Call) and (found := arguments_of(program, tree, node)):
                yield found


def arguments_of(program: Program, tree: Tree, call: ir.Call) -> TrainerSettings | None:
    """Return the settings of FSDP that a call holds, None if it makes no training arguments."""
    releases = admitted(program.admits("transformers"))
    if not releases or not _makes_arguments(program, tree, call):
        return None
    given = _of_call(tree, call)
    fsdp, section = given.get(ARGUMENT), given.get(SECTION)
    if fsdp is None and section is None:
        return None
    return settings_of(
        tree.path,
        tree.text,
        releases,
        fsdp=fsdp,
        section=section,
        is_whole=not any(argument.star == "**" for argument in call.args),
        given=_keywords(tree, call),
    )


def _makes_arguments(program: Program, tree: Tree, call: ir.Call) -> bool:
    return is_training_arguments(program.project.library_name(tree.path, call.func))


def _of_call(tree: Tree, call: ir.Call) -> dict[str, Entry]:
    """Return `fsdp` and `fsdp_config` of a call, which a dict that is spread may hold."""
    found: dict[str, Entry] = {}
    for argument in call.args:
        if argument.star == "**":
            for node in _parts(tree, argument.value):
                if isinstance(node, ir.DictDisplay):
                    found |= {entry.name: entry for entry in _mapping(tree, node, False).entries}
                elif isinstance(node, ir.Call) and ir.last_name(node.func) == "dict":
                    found |= _of_call(tree, node)
    found |= _keywords(tree, call)
    return {name: found[name] for name in (ARGUMENT, SECTION) if name in found}


def _keywords(tree: Tree, call: ir.Call) -> dict[str, Entry]:
    """Return the keyword arguments that a call itself has."""
    found: dict[str, Entry] = {}
    for argument in call.args:
        if argument.keyword is not None:
            end = argument.start + len(argument.keyword)
            key = Scalar(argument.start, end, argument.keyword, "")
            found[argument.keyword] = Entry(key, _argument(tree, argument.value))
    return found


def _parts(tree: Tree, expression: ir.Expr) -> Iterator[ir.Node]:
    """Yield the nodes of what is spread, or of what is assigned to it."""
    given = tree.assigned(expression) if isinstance(expression, ir.Name) else []
    for value in given or [expression]:
        yield from ir.walk(value)


def _argument(tree: Tree, expression: ir.Expr) -> Node:
    """Return the value of an argument; a dict may be where a variable is assigned, or one arm."""
    meant = tree.meaning(expression)
    # A variable may have been changed meanwhile.
    changed = meant is not expression and _is_changed(tree, expression)
    arms = (meant.body, meant.orelse) if isinstance(meant, ir.Conditional) else (meant,)
    displays = [arm for arm in arms if isinstance(arm, ir.DictDisplay)]
    return _mapping(tree, displays[0], changed) if displays else _value(tree, expression)


def _value(tree: Tree, expression: ir.Expr) -> Node:
    """Return an expression as a value in its own place; a variable may stand for a constant."""
    start, end = expression.start, expression.end
    if isinstance(expression, ir.DictDisplay):
        return _mapping(tree, expression, False)
    if isinstance(expression, ir.Collection):
        items = tuple(_value(tree, each) for each in expression.elements)
        return Sequence(start, end, items, True)
    meant = tree.meaning(expression)
    if not isinstance(meant, ir.Constant):
        return Scalar(start, end, UNKNOWN, "")
    quote = tree.text[start]
    return Scalar(start, end, meant.value, quote if quote in "'\"" else "")


def _mapping(tree: Tree, display: ir.DictDisplay, is_open: bool) -> Mapping:
    entries = [
        Entry(key, _value(tree, value))
        for name, value in display.items
        if isinstance(name, ir.Constant) and isinstance(key := _value(tree, name), Scalar)
        # Not of several parts, or with a prefix.
        if tree.slice(name) == f"{key.quote}{key.value}{key.quote}"
    ]
    is_open = is_open or len(entries) < len(display.items)
    return Mapping(display.start, display.end, tuple(entries), True, is_open)


def _is_changed(tree: Tree, name: ir.Expr) -> bool:
    """Return whether a variable is used for more than its assignment and one argument."""
    named = name.id if isinstance(name, ir.Name) else ""
    nodes = tree.nodes_of(tree.scope(name))
    return sum(isinstance(each, ir.Name) and each.id == named for each in nodes) > 2
