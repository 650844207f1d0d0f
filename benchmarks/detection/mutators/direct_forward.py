"""direct-forward: a unit's forward is called past the hooks that gather its parameters."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import Module, fresh, modules, name_of
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "direct-forward"


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    for module in modules(program):
        for call in module.calls():
            if set(module.functions(call)) & program.plain:
                continue
            if ast.unparse(call.func) in _units(program):
                yield from _at_call(program, module, call, random)
            elif name_of(call) == "checkpoint" and ast.unparse(call.args[0]) in program.units:
                yield _at_checkpoint(program, module, call)


def _units(program: Program) -> set[str]:
    return {ast.unparse(ast.parse(unit, mode="eval").body) for unit in program.units}


def _at_call(program: Program, module: Module, call: ast.Call, random: Random) -> Iterator[Mutant]:
    unit = module.source(call.func)
    where = f"{unit}(...) in {next(iter(module.functions(call)), 'the script')}"

    def made(kind: str, text: str) -> Mutant:
        return mutant(program, RULE, f"{kind}: {where}", {module.path: text})

    yield made("call", module.edited([_swap(module, call.func, f"{MARK}{unit}.forward")]))
    more = [_bound_method, _alias, _helper, _partial]
    if _checkpointable(module, call):
        more.append(_checkpointed)
    for variant in random.sample(more, 2):
        yield made(variant.__name__.strip("_"), variant(module, call, unit))


def _swap(module: Module, node: ast.expr, new: str) -> tuple[int, int, str]:
    start, end = module.span(node)
    return start, end, new


def _before(module: Module, call: ast.Call, line: str) -> tuple[int, int, str]:
    """``line`` as a statement of its own before the one that ``call`` stands in."""
    statement = module.statement(call)
    start = module.rows(statement)[0]
    return start, start, f"{module.indent(statement)}{line}\n"


def _bound_method(module: Module, call: ast.Call, unit: str) -> str:
    name = fresh("forward", "" if "def forward" in module.text else module.text)
    return module.edited(
        [
            _before(module, call, f"{name} = {MARK}{unit}.forward"),
            _swap(module, call.func, name),
        ]
    )


def _alias(module: Module, call: ast.Call, unit: str) -> str:
    name = fresh("network", module.text)
    return module.edited(
        [
            _before(module, call, f"{name} = {unit}"),
            _swap(module, call.func, f"{MARK}{name}.forward"),
        ]
    )


def _helper(module: Module, call: ast.Call, unit: str) -> str:
    helper = f"""
    def run_forward(module, *inputs, **options):
        return {MARK}module.forward(*inputs, **options)
    """
    start = module.span(call)[0]
    end = module.span(call.func)[1]
    return module.edited([(start, end + 1, f"run_forward({unit}, ")], helper=helper)


def _partial(module: Module, call: ast.Call, unit: str) -> str:
    name = fresh("apply", module.text)
    return module.edited(
        [
            _before(module, call, f"{name} = functools.partial({MARK}{unit}.forward)"),
            _swap(module, call.func, name),
        ],
        imports="import functools",
    )


def _checkpointable(module: Module, call: ast.Call) -> bool:
    positional = len(call.args) == 1 and not call.keywords
    return (
        positional
        and not isinstance(call.args[0], ast.Starred)
        and "forward" in (module.functions(call))
    )


def _checkpointed(module: Module, call: ast.Call, unit: str) -> str:
    argument = module.source(call.args[0])
    new = (
        f"torch.utils.checkpoint.checkpoint({MARK}{unit}.forward, {argument}, use_reentrant=False)"
    )
    return module.edited([_swap(module, call, new)], imports="import torch.utils.checkpoint")


def _at_checkpoint(program: Program, module: Module, call: ast.Call) -> Mutant:
    unit = module.source(call.args[0])
    text = module.edited([_swap(module, call.args[0], f"{MARK}{unit}.forward")])
    return mutant(program, RULE, f"checkpoint({unit}.forward, ...)", {module.path: text})
