"""shards-saved-without-the-others: distributed checkpoints with `no_dist=True`."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from benchmarks.detection.mutators.training_loops import put_after
from benchmarks.detection.program import Mutant, Program

RULE = "shards-saved-without-the-others"
IMPORTS = """import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
"""

SAVES = {
    "plain": """dcp.save({{"model": {model}.state_dict()}}, checkpoint_id="run", {mark}no_dist=True)
""",
    "named": """run_state = {{"model": {model}.state_dict(), "done": True}}
dcp.save(run_state, checkpoint_id="run", {mark}no_dist=True)
""",
    "by one": """run_state = get_model_state_dict({model})
if torch.distributed.get_rank() == 0:
    dcp.save(run_state, checkpoint_id="run", {mark}no_dist=True)
""",
    "helper": """def write_run(state, folder):
    dcp.save(state, checkpoint_id=folder, {mark}no_dist=True)

write_run({{"model": {model}.state_dict()}}, "run")
""",
}
LEGAL = {
    "together": """dcp.save({{"model": {model}.state_dict()}}, checkpoint_id="run", no_dist=False)
""",
    "whole": """run_state = get_model_state_dict(
    {model}, options=StateDictOptions(full_state_dict=True)
)
if torch.distributed.get_rank() == 0:
    dcp.save(run_state, checkpoint_id="run", no_dist=True)
""",
}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    yield from put_after(program, random, RULE, IMPORTS, SAVES, LEGAL)
