"""cast-after-sharding: another dtype for a sharded model, and one more forward, before a step."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import Module, indented, modules
from benchmarks.detection.mutators.fsdp1_clip import Step, steps
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "cast-after-sharding"
WRONG = {
    "bfloat16": "§{model}.bfloat16()",
    "half": "§{model}.half()",
    "to": "§{model}.to(torch.bfloat16)",
    "to by keyword": "§{model}.to(dtype=torch.float16)",
    "device and dtype": '§{model}.to("cpu", torch.float64)',
}
LEGAL = {
    "the same": "{model}.float()",
    "back again": "{model}.bfloat16()\n{model}.float()",
    "a device": '{model}.to(torch.device("cpu"))',
}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    text = "".join(program.files.values())
    if not program.units or "mp_policy" in text or "mixed_precision" in text:
        return
    for module in modules(program):
        for step in steps(program, module):
            for kind in random.sample(sorted(WRONG), 4):
                files = {module.path: _inserted(module, step, WRONG[kind].replace("§", MARK))}
                yield mutant(program, RULE, kind, files)
            for kind in random.sample(sorted(LEGAL), 2):
                yield mutant(program, "", kind, {module.path: _inserted(module, step, LEGAL[kind])})


def _inserted(module: Module, step: Step, cast: str) -> str:
    """A cast and a forward before the step."""
    start, _ = module.rows(step.statement)
    lines = f"{cast.format(model=step.model)}\n{step.model}(torch.ones(2, 8)).sum().backward()\n"
    text = indented(lines, module.indent(step.statement))
    return module.edited([(start, start, text)], imports="import torch")
