"""gradient-hook-never-runs: hooks on parameters that no backward reaches."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from benchmarks.detection.mutators.training_loops import trainings
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "gradient-hook-never-runs"
IMPORTS = "import torch\n"
WRONG = {
    "lambda": """for parameter in {model}.parameters():
    {mark}parameter.register_hook(lambda grad: grad.clamp(-1.0, 1.0))
""",
    "by name": """for key, parameter in {model}.named_parameters():
    if key.endswith("weight"):
        {mark}parameter.register_hook(lambda grad: grad * 0.5)
""",
    "list": """trained = [p for p in {model}.parameters() if p.requires_grad]
handles = [{mark}p.register_hook(torch.nan_to_num) for p in trained]
""",
    "helper": """def watch(module, hook):
    for parameter in module.parameters():
        {mark}parameter.register_hook(hook)

watch({model}, torch.nan_to_num)
""",
}
LEGAL = {
    "accumulated": """for parameter in {model}.parameters():
    parameter.register_post_accumulate_grad_hook(lambda p: p.grad.clamp_(-1.0, 1.0))
""",
    "of modules": """for part in {model}.modules():
    part.register_forward_hook(lambda *_: None)
""",
    "of another model": """judge = torch.nn.Linear(4, 4)
for parameter in judge.parameters():
    parameter.register_hook(lambda grad: grad * 0.5)
""",
}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    flat = any("FullyShardedDataParallel" in text for text in program.files.values())
    if flat:
        return  # hooks run on flat parameters
    for training in trainings(program):
        if not training.model:
            continue
        chosen = [(RULE, kind, WRONG[kind]) for kind in random.sample(sorted(WRONG), 3)]
        for rule, kind, code in (*chosen, *(("", kind, code) for kind, code in LEGAL.items())):
            text = code.format(mark=MARK, model=training.model)
            yield mutant(program, rule, kind, training.before(text, IMPORTS))
