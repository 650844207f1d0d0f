"""Checkpoints of wrappers, whose names begin with ``module.``."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.fixes.arguments import argument_of
from fsdplint.fixes.code import Code
from fsdplint.fixes.gather_state import receiver
from fsdplint.fixes.names import dotted
from fsdplint.knowledge.fsdp import WRAPPERS
from fsdplint.migrate.step import Change, Context, Found

_STRIPPED = '{{name.removeprefix("module."): value for name, value in {}.items()}}'


def prefixes(context: Context) -> Iterator[Found]:
    """Yield a change for each load into a wrapper, which is made while its construction shows."""
    for code in context.codes("DataParallel", "DDP"):
        wrappers = _wrappers(context, code)
        for node in ir.walk(code.module):
            target = receiver(node)
            if target is None or not isinstance(node, ir.Call):
                continue
            made = wrappers.get(dotted(target) or "")
            if made is None or ir.last_name(node.func) != "load_state_dict":
                continue
            early = code.function(node) is code.function(made) and node.start < made.start
            state = argument_of(node, 0, "state_dict")
            done = state is not None and ".removeprefix(" in code.slice(state.value)
            if state is not None and not early and not done:
                text = _STRIPPED.format(code.slice(state.value))
                edit = code.edit(state.value.start, state.value.end, text)
                what = "load checkpoints of the wrapper, too, whose names begin with `module.`"
                yield Change(code.span(node), what, (edit,))


def _wrappers(context: Context, code: Code) -> dict[str, ir.Call]:
    """Return the names that are bound to wrappers."""
    found: dict[str, ir.Call] = {}
    for node in ir.walk(code.module):
        call = node.value if isinstance(node, ir.Assign) else None
        if isinstance(call, ir.Call) and context.name(code, call.func) in WRAPPERS:
            assert isinstance(node, ir.Assign)
            names = map(dotted, node.targets)
            found.update((name, call) for name in names if name is not None)
    return found
