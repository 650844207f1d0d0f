"""Checkpoints whose keys have a prefix of DDP's wrapper or of a compiled model."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.finding import Edit
from fsdplint.fixes.arguments import argument_of
from fsdplint.fixes.code import Code
from fsdplint.fixes.gather_state import receiver
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import dotted
from fsdplint.knowledge.calls import COMPILE, COMPILED
from fsdplint.knowledge.ddp import DATA_PARALLEL
from fsdplint.knowledge.fsdp import WRAPPERS
from fsdplint.migrate.step import Change, Context, Found

_LOAD = "load_state_dict"
_STRIPPED = '{{name.removeprefix("module."){}: value for name, value in {}.items()}}'


def prefixes(context: Context, *, drops_data_parallel: bool = False) -> Iterator[Found]:
    """Yield a change for each load into a wrapper, which is made while its construction shows.

    Args:
        drops_data_parallel: `DataParallel` goes as well; if it stays, so do its names.
    """
    compiled = f'.replace("{COMPILED}.", "")' if any(context.codes(COMPILE)) else ""
    passed = _passed(context)
    for code in context.codes(_LOAD):
        wrappers = _wrappers(context, code)
        for node in ir.walk(code.module):
            target = receiver(node) if ir.last_name(getattr(node, "func", node)) == _LOAD else None
            if target is None or not isinstance(node, ir.Call):
                continue
            name, function = dotted(target) or "", code.function(node)
            made = wrappers.get(name, [])
            kinds = {context.name(code, each.func) for each in made}
            if function is not None and not made:
                kinds = passed.get((function.name, name), set())
            stays = not drops_data_parallel and DATA_PARALLEL in kinds
            early = made and code.function(made[-1]) is function and node.start < made[-1].start
            if early or not kinds - ({DATA_PARALLEL} if stays else set()):
                continue
            shown = [each.func for each in made if context.name(code, each.func) == DATA_PARALLEL]
            imports, test = Imports(code, node), ""
            if stays:
                torch = imports.module("torch", "torch") if not shown else ""
                wrapper = code.slice(shown[0]) if shown else f"{torch}.nn.DataParallel"
                test = f"isinstance({name}, {wrapper})"
            for edit in _stripped(code, node, test, compiled):
                what = "load checkpoints of the wrapper, too, whose names begin with `module.`"
                yield Change(code.span(node), what, (edit,), (imports,))


def _stripped(code: Code, call: ir.Call, test: str, compiled: str) -> Iterator[Edit]:
    """Yield the edit of a load; ``test``, if any, is whether the model is in `DataParallel`."""
    state = argument_of(call, 0, "state_dict")
    if state is None or ".removeprefix(" in code.slice(state.value):
        return
    given = code.slice(state.value)
    text = _STRIPPED.format(compiled, given)
    text = f"{given} if {test} else {text}" if test else text
    yield code.edit(state.value.start, state.value.end, text)


def _passed(context: Context) -> dict[tuple[str, str], set[str]]:
    """Return the parameters that get a wrapper, by the name of their function, and its classes."""
    found: dict[tuple[str, str], set[str]] = {}
    for code in context.codes("DataParallel", "DDP"):
        wrappers = _wrappers(context, code)
        calls = (n for n in ir.walk(code.module) if wrappers and isinstance(n, ir.Call))
        given = ((call, index, each) for call in calls for index, each in enumerate(call.args))
        for call, index, each in given:
            kinds = {context.name(code, w.func) for w in wrappers.get(dotted(each.value) or "", ())}
            function = ir.last_name(call.func) if kinds else ""
            for name in _parameters(context, function, index, each.keyword):
                found.setdefault((function, name), set()).update(kinds)
    return found


def _parameters(context: Context, function: str, index: int, keyword: str | None) -> Iterator[str]:
    """Yield the name of a parameter in each function of a name."""
    for code in context.codes(f"def {function}(") if function else ():
        for each in code.functions:
            names = [p.name for p in each.parameters if p.name != "self"]
            if each.name == function:
                yield from [keyword] if keyword else names[index : index + 1]


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
