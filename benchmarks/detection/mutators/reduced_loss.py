"""all-reduced-loss-before-backward: the loss made the mean over the ranks too early."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

from benchmarks.detection.module import Module, modules
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "all-reduced-loss-before-backward"
REDUCE = "torch.distributed.all_reduce"
SIZE = "torch.distributed.get_world_size()"


@dataclass(frozen=True, slots=True)
class Reduced:
    """Statements before and after a backward, and a function for the top level of the file."""

    before: tuple[str, ...]
    after: tuple[str, ...] = ()
    helper: str = ""


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    for module in modules(program):
        for statement, loss in backwards(module):
            for variant in random.sample(WRONG, 5) + random.sample(LEGAL, 3):
                wrong = variant in WRONG
                text = _reduced(module, statement, variant(loss), wrong)
                kind = variant.__name__.strip("_")
                yield mutant(program, RULE if wrong else "", kind, {module.path: text})


def backwards(module: Module) -> Iterator[tuple[ast.Expr, str]]:
    """The statements that call ``backward``, with the name of the loss."""
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
            continue
        function = node.value.func
        if isinstance(function, ast.Attribute) and function.attr == "backward":
            names = [n for n in ast.walk(function.value) if isinstance(n, ast.Name)]
            yield node, min(names, key=lambda name: name.col_offset).id


def _reduced(module: Module, statement: ast.Expr, reduced: Reduced, wrong: bool) -> str:
    start, end = module.rows(statement)
    indent = module.indent(statement)
    before, after = (
        "".join(f"{indent}{line}\n" for line in lines) for lines in (reduced.before, reduced.after)
    )
    mark = module.span(statement)[0]
    edits = [(start, start, before), (end, end, after)]
    if wrong:
        edits.insert(1, (mark, mark, MARK))
    imports = "import os\n\nimport torch\nimport torch.distributed"
    return module.edited(edits, imports=imports, helper=reduced.helper)


def _in_place(loss: str) -> Reduced:
    return Reduced((f"{REDUCE}({loss})", f"{loss} /= {SIZE}"))


def _by_name(loss: str) -> Reduced:
    operation = "op=torch.distributed.ReduceOp.SUM"
    return Reduced((f"{REDUCE}({loss}, {operation})", f"{loss} = {loss} / {SIZE}"))


def _by_method(loss: str) -> Reduced:
    return Reduced((f"{REDUCE}({loss})", f"{loss}.div_({SIZE})"))


def _divided_first(loss: str) -> Reduced:
    return Reduced((f"{loss} = {loss}.div({SIZE})", f"{REDUCE}({loss})"))


def _of_environment(loss: str) -> Reduced:
    return Reduced((f"{REDUCE}({loss})", f'{loss} /= int(os.environ["WORLD_SIZE"])'))


def _where_distributed(loss: str) -> Reduced:
    lines = (
        f"ranks = {SIZE}",
        "if ranks > 1:",
        f"    {REDUCE}({loss})",
        f"    {loss} /= ranks",
    )
    return Reduced(lines)


def _by_helper(loss: str) -> Reduced:
    helper = f"""
    def mean_over_ranks(value):
        {REDUCE}(value)
        return value / {SIZE}
    """
    return Reduced((f"{loss} = mean_over_ranks({loss})",), helper=helper)


def _helper_in_place(loss: str) -> Reduced:
    helper = f"""
    def average_(value):
        {REDUCE}(value)
        value /= {SIZE}
    """
    return Reduced((f"average_({loss})",), helper=helper)


def _summed(loss: str) -> Reduced:
    return Reduced((f"{REDUCE}({loss})",), (f"print({loss}.item() / {SIZE})",))


def _copied(loss: str) -> Reduced:
    lines = (
        f"logged = {loss}.detach().clone()",
        f"{REDUCE}(logged)",
        f"logged /= {SIZE}",
        "print(logged.item())",
    )
    return Reduced(lines)


def _afterwards(loss: str) -> Reduced:
    return Reduced((), (f"{loss} = {loss}.detach()", f"{REDUCE}({loss})", f"{loss} /= {SIZE}"))


def _without_gradients(loss: str) -> Reduced:
    lines = ("with torch.no_grad():", f"    {REDUCE}({loss})", f"    {loss} /= {SIZE}")
    return Reduced(lines)


def _differentiable(loss: str) -> Reduced:
    reduce = "torch.distributed.nn.functional.all_reduce"
    return Reduced(
        ("import torch.distributed.nn.functional", f"{loss} = {reduce}({loss}) / {SIZE}")
    )


Variant = Callable[[str], Reduced]
WRONG: list[Variant] = [
    _in_place,
    _by_name,
    _by_method,
    _divided_first,
    _of_environment,
    _where_distributed,
    _by_helper,
    _helper_in_place,
]
LEGAL: list[Variant] = [_summed, _copied, _afterwards, _without_gradients, _differentiable]
