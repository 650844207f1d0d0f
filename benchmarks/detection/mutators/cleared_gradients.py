"""zero-grad-misses-shards: the model clears the gradients, between forward and backward."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import Module, name_of
from benchmarks.detection.mutators.training_loops import trainings
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "zero-grad-misses-shards"
WRONG = {
    "by the model": "{mark}{model}.zero_grad()\n",
    "to zero": "{mark}{model}.zero_grad(set_to_none=False)\n",
    "by a loop": "for parameter in {model}.parameters():\n    {mark}parameter.grad = None\n",
}
LEGAL = {
    "by the optimizer": "{optimizer}.zero_grad()\n",
    "by both": "{model}.zero_grad()\n{optimizer}.zero_grad()\n",
    "resharded": "{model}.reshard()\n{model}.zero_grad()\n",
}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    if any("FullyShardedDataParallel" in text for text in program.files.values()):
        return
    for training in trainings(program):
        module, names = training.module, {"model": training.model, "optimizer": training.optimizer}
        cleared = _only(module, "zero_grad", training.step)
        backward = _only(module, "backward", training.step)
        if not training.model or cleared is None or backward is None:
            continue
        kinds = {kind: (RULE, WRONG[kind]) for kind in random.sample(sorted(WRONG), 2)}
        kinds |= {kind: ("", code) for kind, code in LEGAL.items()}
        for kind, (rule, code) in kinds.items():
            text = code.format(mark=MARK, **names)
            yield mutant(program, rule, kind, _moved(module, cleared, backward, text))


def _only(module: Module, method: str, step: ast.stmt) -> ast.stmt | None:
    """The only statement of the file that calls ``method``, in the function of ``step``."""
    found = [module.statement(call) for call in module.calls() if name_of(call) == method]
    same = len(found) == 1 and module.functions(found[0]) == module.functions(step)
    return found[0] if same else None


def _moved(module: Module, cleared: ast.stmt, backward: ast.stmt, code: str) -> dict[str, str]:
    """The file with ``code`` above the backward instead of what cleared the gradients."""
    at, _ = module.rows(backward)
    indent = module.indent(backward)
    lines = "".join(f"{indent}{line}\n" for line in code.rstrip("\n").split("\n"))
    edits = [(*module.span(cleared), "pass"), (at, at, lines)]
    return {module.path: module.edited(edits)}
