"""async-save-without-cpu-backend: a save in the background over NCCL alone, in many ways."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from benchmarks.detection.mutators.offload import MADE, MAKES, Shape
from benchmarks.detection.mutators.starts import behind, drawn, with_beside
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "async-save-without-cpu-backend"
DCP = "torch.distributed.checkpoint"
STATE = "extra = torch.distributed.fsdp.fully_shard(torch.nn.Linear(4, 4)).state_dict()\n"
SAVE = f"{DCP}.async_save(extra, checkpoint_id='extra').result()\n"

WRONG = {
    "all in one place": Shape(lines=STATE + SAVE),
    "a backend of one device": Shape(f"{MAKES}(backend={MARK}'cuda:nccl')", STATE + SAVE),
    "a name of a backend": Shape(f"{MAKES}({MARK}torch.distributed.Backend.NCCL)", STATE + SAVE),
    "a constant": Shape(f"{MAKES}({MARK}BACKEND)", STATE + SAVE, 'BACKEND = "nccl"\n'),
    "CUDA if there is some": Shape(
        f"{MAKES}({MARK}'nccl' if torch.cuda.is_available() else 'gloo')", STATE + SAVE
    ),
    "the world": Shape(
        lines=STATE
        + f"{DCP}.async_save(\n    extra, checkpoint_id='extra', "
        + "process_group=torch.distributed.group.WORLD\n).result()\n"
    ),
    "a writer": Shape(
        lines=STATE + f"writer = {DCP}.FileSystemWriter('extra')\n"
        f"saving = {DCP}.async_save(extra, storage_writer=writer)\nsaving.result()\n"
    ),
    "an option": Shape(
        lines=STATE + "if 'BACKGROUND' in os.environ:\n"
        f"    {SAVE}else:\n    {DCP}.save(extra, checkpoint_id='extra')\n"
    ),
    "helpers": Shape(
        "meet()",
        STATE + "in_background(extra).result()\n",
        f"def meet(backend='nccl'):\n    {MAKES}({MARK}backend)\n\n\n"
        f"def in_background(state):\n    return {DCP}.async_save(state, checkpoint_id='extra')\n",
    ),
    "a class": Shape(
        lines=STATE + "Extra().save(extra)\n",
        helper="class Extra:\n    def __init__(self):\n        self.pending = None\n\n"
        f"    def save(self, state):\n        self.pending = {DCP}.async_save(\n"
        "            state, checkpoint_id='extra'\n        )\n        self.pending.result()\n",
    ),
    "another file": Shape(
        lines=STATE + "import my_saving\nmy_saving.save(extra)\n",
        beside="import torch.distributed.checkpoint as dcp\n\n\n"
        "def save(state):\n    dcp.async_save(state, checkpoint_id='extra').result()\n",
    ),
}
LEGAL = {
    "both backends": Shape(f"{MAKES}('cpu:gloo,cuda:nccl')", STATE + SAVE),
    "every backend": Shape(f"{MAKES}()", STATE + SAVE),
    "in the foreground": Shape(lines=STATE + f"{DCP}.save(extra, checkpoint_id='extra')\n"),
    "a group of gloo": Shape(
        lines=STATE + "beside = torch.distributed.new_group(backend='gloo')\n"
        f"{DCP}.async_save(extra, checkpoint_id='extra', process_group=beside).result()\n"
    ),
}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    # A program that offloads needs a backend for the CPU anyway.
    offloads = any("CPUOffloadPolicy" in text for text in program.files.values())
    alone = {kind: shape for kind, shape in LEGAL.items() if not (offloads and shape.call == MADE)}
    for module, call, wrong, kind, shape in drawn(program, random, WRONG, alone):
        edits = [(*module.span(call), shape.call), behind(module, call, shape.lines)]
        imports = f"import os, torch, torch.distributed.fsdp, {DCP}"
        text = module.edited(edits, imports, shape.helper)
        texts = with_beside(program, module, text, "my_saving.py", shape.beside)
        yield mutant(program, RULE if wrong else "", f"saved by {kind}", texts)
