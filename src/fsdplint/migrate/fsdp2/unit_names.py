"""Texts with the names that FSDP1's wrapper gives to modules and parameters."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.fixes.code import Code
from fsdplint.knowledge.fsdp import FLAT_PARAMETER, WRAPPED_MODULE
from fsdplint.migrate.step import Context, Found, kept

_NAMES = (WRAPPED_MODULE, FLAT_PARAMETER)
# Calls that do the same without the name, or ask for it first.
_CLEANING = frozenset({"getattr", "hasattr", "lstrip", "partition", "removeprefix", "replace"})
_CLEANING |= {"removesuffix", "rstrip", "split", "strip", "sub"}
_WHY = "`fully_shard` adds nothing to the names of modules and parameters; change this by hand"


def unit_names(context: Context) -> Iterator[Found]:
    """Yield each text that selects something by such a name, which FSDP2 does not give."""
    for code in context.codes(*_NAMES):
        for node in code.walk(*_NAMES):
            selects = isinstance(node, ir.Constant) and _is_name(node)
            if selects and not isinstance(code.parent(node), ir.Expression):
                yield from () if _only_cleans(code, node) else (kept(code, node, _WHY),)


def _is_name(node: ir.Constant) -> bool:
    text = node.value
    return isinstance(text, str) and not {*_NAMES}.isdisjoint(text.split("."))


def _only_cleans(code: Code, node: ir.Node) -> bool:
    """True if a text is removed from a name, or decides only whether it is."""
    parent = code.parent(node)
    call = code.parent(parent) if isinstance(parent, ir.Argument) else None
    if isinstance(call, ir.Call):
        return ir.last_name(call.func) in _CLEANING
    choice = code.parent(parent) if isinstance(parent, ir.Compare) else None
    if isinstance(choice, ir.If):
        body: tuple[ir.Node, ...] = choice.body
    elif isinstance(choice, ir.Conditional):
        body = (choice.body, choice.orelse)
    else:
        return False
    inside = [n for each in body for n in ir.walk(each) if isinstance(n, ir.Constant)]
    return any(_is_name(each) and _only_cleans(code, each) for each in inside)
