"""Branches for an argument that was left out, which the caller gives."""

from __future__ import annotations

from itertools import pairwise

from fsdplint.engine import ir
from fsdplint.engine.program import Program
from fsdplint.engine.site import Guard, Site
from fsdplint.engine.written import argument


def is_given(program: Program, site: Site, guard: Guard) -> bool:
    """Whether a branch is for a parameter that is None, and the call that leads there gives it.

    What it gives is not known, or the branch were decided.
    """
    tree = program.tree(guard.path)
    name, function = _left_out(guard), tree.function(guard.test)
    names = [] if function is None else [each.name for each in function.parameters]
    if function is None or name not in names or not _is_optional(function, name):
        return False
    frames = site.frames()
    for (_, call), (path, node) in pairwise(frames):
        if path == guard.path and tree.function(node) is function:
            return argument(call, names.index(name) - _is_bound(names), name) is not None
    return False


def _left_out(guard: Guard) -> str:
    """The variable that a branch finds to be None or empty, "" for any other branch."""
    test, absent = guard.test, not guard.taken
    if isinstance(test, ir.Compare) and test.op in ("Is", "IsNot", "Equal", "NotEqual"):
        none = isinstance(test.right, ir.Constant) and test.right.value is None
        absent = none and guard.taken is (test.op in ("Is", "Equal"))
        test = test.left
    return test.id if absent and isinstance(test, ir.Name) else ""


def _is_optional(function: ir.Function, name: str) -> bool:
    defaults = (each.default for each in function.parameters if each.name == name)
    return any(isinstance(each, ir.Constant) and each.value is None for each in defaults)


def _is_bound(names: list[str]) -> bool:
    return names[:1] in (["self"], ["cls"])
