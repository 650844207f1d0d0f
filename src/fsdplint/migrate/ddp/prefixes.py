"""Checkpoints of wrappers and compiled models, whose names have their attributes in them."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.fixes.arguments import argument_of
from fsdplint.fixes.code import Code
from fsdplint.fixes.gather_state import receiver
from fsdplint.fixes.names import dotted
from fsdplint.knowledge.calls import COMPILE, COMPILED
from fsdplint.knowledge.ddp import DATA_PARALLEL
from fsdplint.knowledge.fsdp import WRAPPERS
from fsdplint.migrate.step import Change, Context, Found

_STRIPPED = '{{name.removeprefix("module."){}: value for name, value in {}.items()}}'


def prefixes(context: Context, *, drops_data_parallel: bool = False) -> Iterator[Found]:
    """Yield a change for each load into a wrapper, which is made while its construction shows.

    Args:
        drops_data_parallel: `DataParallel` goes as well; if it stays, so do its names.
    """
    compiled = f'.replace("{COMPILED}.", "")' if any(context.codes(COMPILE)) else ""
    for code in context.codes("DataParallel", "DDP"):
        wrappers = _wrappers(context, code)
        for node in ir.walk(code.module):
            target = receiver(node)
            if target is None or not isinstance(node, ir.Call):
                continue
            made = wrappers.get(dotted(target) or "", [])
            kept = [each for each in made if context.name(code, each.func) == DATA_PARALLEL]
            if drops_data_parallel:
                kept = []
            if len(kept) == len(made) or ir.last_name(node.func) != "load_state_dict":
                continue
            last = made[-1]
            early = code.function(node) is code.function(last) and node.start < last.start
            state = argument_of(node, 0, "state_dict")
            done = state is not None and ".removeprefix(" in code.slice(state.value)
            if state is not None and not early and not done:
                given = code.slice(state.value)
                text = _STRIPPED.format(compiled, given)
                if kept:
                    wrapper = code.slice(kept[0].func)
                    text = f"{given} if isinstance({code.slice(target)}, {wrapper}) else {text}"
                edit = code.edit(state.value.start, state.value.end, text)
                what = "load checkpoints of the wrapper, too, whose names begin with `module.`"
                yield Change(code.span(node), what, (edit,))


def _wrappers(context: Context, code: Code) -> dict[str, list[ir.Call]]:
    """Return the wrappers that names are bound to."""
    found: dict[str, list[ir.Call]] = {}
    for node in ir.walk(code.module):
        for call in ir.walk(node.value) if isinstance(node, ir.Assign) else ():
            if isinstance(call, ir.Call) and context.name(code, call.func) in WRAPPERS:
                assert isinstance(node, ir.Assign)
                for name in filter(None, map(dotted, node.targets)):
                    found.setdefault(name, []).append(call)
    return found
