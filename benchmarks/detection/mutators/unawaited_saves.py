"""async-save-not-awaited: checkpoints are saved in the background, and nothing waits for them."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from benchmarks.detection.mutators.training_loops import trainings
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "async-save-not-awaited"
IMPORTS = "import torch.distributed.checkpoint as dcp"

SAVES = {
    "dropped": """{mark}dcp.async_save({{"model": {model}.state_dict()}}, checkpoint_id="run")
""",
    "writer": """run_writer = dcp.FileSystemWriter("run")
{mark}dcp.async_save({{"model": {model}.state_dict()}}, storage_writer=run_writer)
""",
    "name": """run_state = {{"model": {model}.state_dict(), "done": False}}
run_future = {mark}dcp.async_save(run_state, checkpoint_id="run")
""",
    "underscore": """run_state = {{"model": {model}.state_dict(), "done": False}}
_ = {mark}dcp.async_save(run_state, checkpoint_id="run")
""",
    "two at once": """run_one = {mark}dcp.async_save({model}.state_dict(), checkpoint_id="one")
run_two = dcp.async_save({model}.state_dict(), checkpoint_id="two")
run_one.result()
run_two.result()
""",
    "loop": """run_futures = []
for run_part in range(4):
    run_name = f"part-{{run_part}}"
    run_futures.append({mark}dcp.async_save({model}.state_dict(), checkpoint_id=run_name))
for run_future in run_futures:
    run_future.result()
""",
    "helper": """def write_run(state, folder):
    {mark}dcp.async_save(state, checkpoint_id=folder)

write_run({{"model": {model}.state_dict()}}, "run")
""",
    "class": """class RunWriter:
    def __init__(self, folder):
        self.folder = folder
        self.run_in_flight = None

    def write(self, state):
        self.run_in_flight = {mark}dcp.async_save(state, checkpoint_id=self.folder)

RunWriter("run").write({{"model": {model}.state_dict()}})
""",
}
LEGAL = {
    "waited for": """run_future = dcp.async_save({model}.state_dict(), checkpoint_id="run")
print("saving")
run_future.result()
""",
    "one by one": """run_one = dcp.async_save({model}.state_dict(), checkpoint_id="one")
run_one.result()
run_two = dcp.async_save({model}.state_dict(), checkpoint_id="two")
run_two.result()
""",
    "at once": """dcp.async_save({model}.state_dict(), checkpoint_id="run").result()
""",
    "by a helper": """def start_run(state):
    return dcp.async_save(state, checkpoint_id="run")

start_run({model}.state_dict()).result()
""",
}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    for training in trainings(program):
        if not training.model:
            continue
        for kind in random.sample(sorted(SAVES), 4):
            code = SAVES[kind].format(mark=MARK, model=training.model)
            yield mutant(program, RULE, kind, training.after(code, IMPORTS))
        # Saves in the background are wrong where the program has NCCL alone.
        for kind, code in LEGAL.items() if _has_cpu_backend(program) else ():
            text = code.format(model=training.model)
            yield mutant(program, "", kind, training.after(text, IMPORTS))


def _has_cpu_backend(program: Program) -> bool:
    text = "".join(program.files.values())
    return "init_process_group()" in text or "cpu:gloo,cuda:nccl" in text
