"""rank0-state-saved-by-all: what rank 0 alone holds is written by every rank."""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random

from benchmarks.detection.mutators.training_loops import put_after
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "rank0-state-saved-by-all"
IMPORTS = """import torch
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
"""
OPTIONS = "full = StateDictOptions(full_state_dict=True, cpu_offload=True)\n"
GUARDED = re.compile(r"if (?:dist\.get_rank\(\) == 0|is_rank_zero\(\)):(\n +)torch\.save")

SAVES = {
    "plain": OPTIONS
    + """{mark}torch.save(get_model_state_dict({model}, options=full), "run.pt")
""",
    "in a dict": OPTIONS
    + """weights = get_model_state_dict({model}, options=full)
{mark}torch.save({{"weights": weights, "done": True}}, "run.pt")
""",
    "helper": """def whole_weights(model):
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    return get_model_state_dict(model, options=options)

def write_run(weights, folder):
    {mark}torch.save(weights, f"{{folder}}/run.pt")

write_run(whole_weights({model}), "run")
""",
    "class": """class RunWriter:
    def __init__(self, model):
        self.model = model
        self.options = StateDictOptions(full_state_dict=True, cpu_offload=True)

    def write(self, name):
        {mark}torch.save(get_model_state_dict(self.model, options=self.options), name)

RunWriter({model}).write("run.pt")
""",
}
LEGAL = {
    "by one": OPTIONS
    + """weights = get_model_state_dict({model}, options=full)
if torch.distributed.get_rank() == 0:
    torch.save(weights, "run.pt")
""",
    "each its own": OPTIONS
    + """weights = get_model_state_dict({model}, options=full)
torch.save(weights, f"run-{{torch.distributed.get_rank()}}.pt")
""",
    "where there is one": OPTIONS
    + """weights = get_model_state_dict({model}, options=full)
if weights:
    torch.save(weights, "run.pt")
""",
}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    for path, text in program.files.items():
        if re.search(r"cpu_offload=True|rank0_only=True", text) and GUARDED.search(text):
            changed = GUARDED.sub(rf"if True:\1{MARK}torch.save", text)
            yield mutant(program, RULE, "guard taken away", {path: changed})
    yield from put_after(program, random, RULE, IMPORTS, SAVES, LEGAL)
