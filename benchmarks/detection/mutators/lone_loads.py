"""rank0-state-loaded-by-all: a whole state of rank 0 is loaded, and nothing sends it."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from benchmarks.detection.mutators.training_loops import put_after
from benchmarks.detection.program import Mutant, Program

RULE = "rank0-state-loaded-by-all"
IMPORTS = """import torch
import torch.distributed
from torch.distributed.checkpoint.state_dict import StateDictOptions
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
"""
OPTIONS = "whole = StateDictOptions(full_state_dict=True, cpu_offload=True)\n"
WRONG = {
    "conditional": OPTIONS
    + """weights = torch.load("best.pt") if torch.distributed.get_rank() == 0 else {{}}
{mark}set_model_state_dict({model}, weights, options=whole)
""",
    "branch": OPTIONS
    + """weights = {{}}
if torch.distributed.get_rank() == 0:
    weights = torch.load("best.pt")
{mark}set_model_state_dict({model}, weights, options=whole)
""",
    "gathered": OPTIONS
    + """kept = get_model_state_dict({model}, options=whole)
{mark}set_model_state_dict({model}, kept, options=StateDictOptions(full_state_dict=True))
""",
    "helper": """def read_once(path):
    if torch.distributed.get_rank() != 0:
        return {{}}
    return torch.load(path, mmap=True)

def load_into(model, path):
    whole = StateDictOptions(full_state_dict=True)
    {mark}set_model_state_dict(model, read_once(path), options=whole)

load_into({model}, "best.pt")
""",
}
LEGAL = {
    "broadcast": """weights = torch.load("best.pt") if torch.distributed.get_rank() == 0 else {{}}
sent = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
set_model_state_dict({model}, weights, options=sent)
""",
    "read by all": OPTIONS
    + """set_model_state_dict({model}, torch.load("best.pt"), options=whole)
""",
    "shards": """set_model_state_dict({model}, get_model_state_dict({model}))
""",
}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    yield from put_after(program, random, RULE, IMPORTS, WRONG, LEGAL)
