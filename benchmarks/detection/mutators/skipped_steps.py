"""step-skipped-on-one-rank: a rank leaves out the backward by the loss of its own batch."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from benchmarks.detection.module import Function, Module, modules
from benchmarks.detection.mutators.reduced_loss import backwards
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "step-skipped-on-one-rank"
IMPORTS = "import math\nimport sys\n\nimport torch\nimport torch.distributed"
HELPERS = """
def is_bad(value, limit=1e4):
    return torch.isnan(value).any() or value.abs().max() > limit


def on_any_rank(flag):
    flag = torch.as_tensor(flag).float()
    torch.distributed.all_reduce(flag, op=torch.distributed.ReduceOp.MAX)
    return flag.item() > 0
"""


@dataclass(frozen=True, slots=True)
class Skip:
    """Statements instead of a backward.

    Attributes:
        code: with {loss}, {leave} for what leaves the step, {backward}, and {mark} before a test.
    """

    kind: str
    code: str


WRONG = (
    Skip("NaN", "if {mark}torch.isnan({loss}):\n    {leave}\n{backward}"),
    Skip(
        "not finite",
        "if {mark}not torch.isfinite({loss}).all():\n    print('skipped')\n    {leave}\n{backward}",
    ),
    Skip("too large", "if {mark}{loss}.item() > 1e4:\n    {leave}\n{backward}"),
    Skip("math", "value = {loss}.item()\nif {mark}math.isnan(value):\n    {leave}\n{backward}"),
    Skip("around", "if {mark}torch.isfinite({loss}):\n    {backward}"),
    Skip(
        "two arms",
        "finite = torch.isfinite({loss}.detach()).item()\n"
        "if {mark}finite:\n    {backward}\nelse:\n    print('skipped')",
    ),
    Skip("helper", "if {mark}is_bad({loss}):\n    {leave}\n{backward}"),
    Skip(
        "either",
        "if {mark}torch.isnan({loss}) or torch.isinf({loss}):\n    {leave}\n{backward}",
    ),
    Skip(
        "besides an option",
        "if {mark}len(sys.argv) < 99 and float({loss}) > 1e4:\n    {leave}\n{backward}",
    ),
)
LEGAL = (
    Skip("raised", "if torch.isnan({loss}):\n    raise FloatingPointError({loss})\n{backward}"),
    Skip("exit", "if not math.isfinite({loss}.item()):\n    sys.exit(1)\n{backward}"),
    Skip(
        "agreed",
        "flag = torch.isnan({loss}).float()\ntorch.distributed.all_reduce(flag)\n"
        "if flag > 0:\n    {leave}\n{backward}",
    ),
    Skip("agreed in a helper", "if on_any_rank(is_bad({loss})):\n    {leave}\n{backward}"),
    Skip("logged", "if {loss}.item() > 1e4:\n    print('large', {loss})\n{backward}"),
    Skip(
        "made zero",
        "if torch.isnan({loss}):\n    {loss} = torch.nan_to_num({loss}) * 0\n{backward}",
    ),
    Skip(
        "backward in both arms",
        "if torch.isfinite({loss}):\n    {backward}\nelse:\n    (0 * {loss}).backward()",
    ),
)


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    for module in modules(program):
        for statement, loss in backwards(module):
            for skip in random.sample(WRONG, 5) + random.sample(LEGAL, 3):
                text = _skipped(module, statement, loss, skip)
                rule = RULE if skip in WRONG else ""
                kind = f"{skip.kind}, line {statement.lineno}"
                yield mutant(program, rule, kind, {module.path: text})


def _skipped(module: Module, statement: ast.Expr, loss: str, skip: Skip) -> str:
    start, end = module.rows(statement)
    indent = module.indent(statement)
    code = skip.code.format(
        loss=loss, leave=_leave(module, statement), backward=module.source(statement), mark=MARK
    )
    lines = "".join(f"{indent}{line}\n" for line in code.split("\n"))
    helper = HELPERS if "is_bad(" in code else ""
    return module.edited([(start, end, lines)], imports=IMPORTS, helper=helper)


def _leave(module: Module, statement: ast.stmt) -> str:
    """The statement that leaves the step: its loop in the same function, or the function."""
    node: ast.AST = statement
    while node in module.parents:
        if isinstance(node, (ast.For, ast.While)):
            return "continue"
        if isinstance(node, Function):
            return "return"
        node = module.parents[node]
    return "sys.exit()"
