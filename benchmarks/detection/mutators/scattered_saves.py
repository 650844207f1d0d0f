"""checkpoint-path-differs-by-rank: each rank saves a checkpoint under a path of its own."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from benchmarks.detection.mutators.training_loops import trainings
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "checkpoint-path-differs-by-rank"
IMPORTS = """import datetime
import os
import pathlib
import tempfile
import time
import uuid
import torch.distributed as dist
import torch.distributed.checkpoint as dcp"""

PATHS = {
    "rank": 'f"run/rank{dist.get_rank()}"',
    "rank from the environment": 'os.path.join("run", os.environ["RANK"])',
    "seconds": 'time.strftime("run/%Y%m%d-%H%M%S")',
    "minutes": 'f"run/{datetime.datetime.now():%m-%d_%H-%M}"',
    "since the epoch": '"run/" + str(int(time.time()))',
    "moment": 'pathlib.Path("run") / datetime.datetime.now().isoformat()',
    "uuid": '"run-%s" % uuid.uuid4().hex[:8]',
    "process": '"run/{}".format(os.getpid())',
    "temporary": "tempfile.mkdtemp()",
}
SAVES = {
    "in place": """{mark}dcp.save({{"model": {model}.state_dict()}}, checkpoint_id={path})
""",
    "variable": """folder_of_run = {path}
state_of_run = {{"model": {model}.state_dict(), "done": False}}
{mark}dcp.save(state_of_run, checkpoint_id=folder_of_run)
""",
    "writer": """run_writer = dcp.FileSystemWriter({path})
{mark}dcp.save({{"model": {model}.state_dict()}}, storage_writer=run_writer)
""",
    "background": """state_of_run = {{"model": {model}.state_dict()}}
{mark}dcp.async_save(state_of_run, checkpoint_id={path}).result()
""",
    "helper": """def write_run(state, root):
    folder = os.path.join(root, "last")
    {mark}dcp.save(state, checkpoint_id=folder)

write_run({{"model": {model}.state_dict()}}, {path})
""",
    "class": """class RunWriter:
    def __init__(self):
        self.root = {path}

    def write(self, state):
        {mark}dcp.save(state, checkpoint_id=self.root)

RunWriter().write({{"model": {model}.state_dict()}})
""",
}
LEGAL = {
    "broadcast": """names_of_run = [time.strftime("%H%M%S")]
dist.broadcast_object_list(names_of_run, src=0)
dcp.save({{"model": {model}.state_dict()}}, checkpoint_id=names_of_run[0])
""",
    "day": """day_of_run = time.strftime("run/%Y-%m-%d")
dcp.save({{"model": {model}.state_dict()}}, checkpoint_id=day_of_run)
""",
    "alone": """own_state = {{"rank": dist.get_rank()}}
dcp.save(own_state, checkpoint_id=f"run/{{dist.get_rank()}}", no_dist=True)
""",
}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    for training in trainings(program):
        if not training.model:
            continue
        for kind in random.sample(sorted(SAVES), 4):
            name = random.choice(sorted(PATHS))
            code = SAVES[kind].format(mark=MARK, model=training.model, path=PATHS[name])
            yield mutant(program, RULE, f"{kind}, {name}", training.after(code, IMPORTS))
        for kind, code in LEGAL.items():
            text = code.format(model=training.model)
            yield mutant(program, "", kind, training.after(text, IMPORTS))
