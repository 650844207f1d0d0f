"""fresh-optimizer-in-dcp-load: a checkpoint is resumed into an optimizer that has no state yet."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import modules
from benchmarks.detection.mutators.optimizer_order import constructs
from benchmarks.detection.mutators.training_loops import Training, trainings
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "fresh-optimizer-in-dcp-load"
IMPORTS = "import torch.distributed.checkpoint as dcp"

LOADS = {
    "in place": """{mark}dcp.load({{"optim": {optimizer}.state_dict()}}, checkpoint_id="moments")
""",
    "the optimizer itself": """{mark}dcp.load({{"optim": {optimizer}}}, checkpoint_id="moments")
""",
    "given back": """resumed = {{"optim": {optimizer}.state_dict(), "epoch": 0}}
{mark}dcp.load(resumed, checkpoint_id="moments")
{optimizer}.load_state_dict(resumed["optim"])
print(resumed["epoch"])
""",
    "put together by hand": """resumed = {{}}
resumed["optim"] = {optimizer}.state_dict()
{mark}dcp.load(state_dict=resumed, storage_reader=dcp.FileSystemReader("moments"))
""",
    "all of it": """{mark}dcp.load({optimizer}.state_dict(), checkpoint_id="moments")
""",
    "helper": """def read_moments(state, name):
    {mark}dcp.load(state, checkpoint_id=name)

read_moments({{"optim": {optimizer}.state_dict()}}, "moments")
""",
    "where there is one": """import os

if os.path.isdir("moments"):
    {mark}dcp.load({{"optim": {optimizer}.state_dict()}}, checkpoint_id="moments")
""",
}
SAVES = {
    "the optimizer itself": """dcp.save({{"optim": {optimizer}}}, checkpoint_id="moments")
""",
    "all of it": """dcp.save({optimizer}.state_dict(), checkpoint_id="moments")
""",
}
SAVE = """dcp.async_save({{"optim": {optimizer}.state_dict()}}, checkpoint_id="moments")
"""
LEGAL = {
    "moments made first": """from torch.distributed.checkpoint.state_dict import _init_optim_state

_init_optim_state({optimizer})
dcp.load({{"optim": {optimizer}.state_dict()}}, checkpoint_id="moments")
""",
    "unknown code makes them": """from checkpoints import start

start({optimizer})
dcp.load({{"optim": {optimizer}.state_dict()}}, checkpoint_id="moments")
""",
    "saved only": """dcp.save({{"optim": {optimizer}.state_dict()}}, checkpoint_id="moments")
""",
}
AFTER = """dcp.load({{"optim": {optimizer}.state_dict()}}, checkpoint_id="moments")
"""


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    for place in _places(program):
        for kind in random.sample(sorted(LOADS), 3):
            yield mutant(program, RULE, kind, _at(place, LOADS[kind]))
            saved = SAVES.get(kind, SAVE) + LOADS[kind]
            yield mutant(program, RULE, f"saved, {kind}", _at(place, saved))
        for kind, code in LEGAL.items():
            yield mutant(program, "", kind, _at(place, code))
    for training in trainings(program):
        code = AFTER.format(optimizer=training.optimizer)
        yield mutant(program, "", "after a step", training.after(code, IMPORTS))


def _places(program: Program) -> Iterator[Training]:
    """Behind the constructions of optimizers, or else before the loops that step them."""
    found = [] if program.optimizer_first else list(_constructions(program))
    yield from found or trainings(program)


def _constructions(program: Program) -> Iterator[Training]:
    for module in modules(program):
        for call in module.calls():
            build = module.statement(call)
            if constructs(call) and isinstance(build, ast.Assign) and build.value is call:
                yield Training(module, build, build, "", module.source(build.targets[0]))


def _at(place: Training, code: str) -> dict[str, str]:
    text = code.format(mark=MARK, optimizer=place.optimizer)
    built = isinstance(place.step, ast.Assign)
    return place.after(text, IMPORTS) if built else place.before(text, IMPORTS)
