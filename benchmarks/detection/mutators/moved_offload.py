"""moved-under-cpu-offload: a model that is kept on the CPU, and moved to the GPU in many ways."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from benchmarks.detection.mutators.starts import behind, drawn, with_beside
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "moved-under-cpu-offload"
FSDP = "torch.distributed.fsdp"
POLICY = f"{FSDP}.CPUOffloadPolicy()"
LINEAR = "torch.nn.Linear(4, 4)"
EXTRA = f"extra = {FSDP}.fully_shard({LINEAR}, offload_policy={POLICY})\n"
BLOCKS = (
    f"extra = torch.nn.Sequential({LINEAR}, {LINEAR})\nfor each in extra:\n"
    f"    {FSDP}.fully_shard(each, offload_policy={POLICY})\n"
)
ROOT = f"{FSDP}.fully_shard(extra, offload_policy={POLICY})\n"
OPTION = (
    f"policy = {POLICY} if 'OFFLOAD' in os.environ else {FSDP}.OffloadPolicy()\n"
    f"extra = {FSDP}.fully_shard({LINEAR}, offload_policy=policy)\n"
)
RUN = "extra(torch.ones(2, 4)).sum().backward()\n"
WRAPPED = (
    f"extra = {FSDP}.FullyShardedDataParallel(\n    {LINEAR}, "
    f"cpu_offload={FSDP}.CPUOffload(offload_params=True)\n)\n"
)


@dataclass(frozen=True, slots=True)
class Shape:
    """What shards a model and moves it.

    Attributes:
        lines: stand behind the call that makes the process group.
        helper: stands at the top level, before the first definition.
        beside: the text of a further file, my_offload.py.
    """

    lines: str
    helper: str = ""
    beside: str = ""


WRONG = {
    "cuda": Shape(f"{EXTRA}{MARK}extra.cuda()\n{RUN}"),
    "text": Shape(f"{EXTRA}{MARK}extra.to('cuda')\n{RUN}"),
    "assigned": Shape(f"{EXTRA}extra = {MARK}extra.to(device='cuda:0')\n{RUN}"),
    "a device": Shape(f"{EXTRA}place = torch.device('cuda', 0)\n{MARK}extra.to(place)\n{RUN}"),
    "CUDA if there is some": Shape(
        f"{EXTRA}place = torch.device('cuda' if torch.cuda.is_available() else 'cpu')\n"
        f"{MARK}extra.to(place)\n{RUN}"
    ),
    "the local rank": Shape(
        f"{EXTRA}local = int(os.environ['LOCAL_RANK'])\n{MARK}extra.to(f'cuda:{{local}}')\n{RUN}"
    ),
    "with a dtype": Shape(f"{EXTRA}{MARK}extra.to('cuda', torch.bfloat16)\n{RUN}"),
    "from meta": Shape(
        f"with torch.device('meta'):\n    extra = {LINEAR}\n{ROOT}"
        f"{MARK}extra.to_empty(device='cuda')\nextra.reset_parameters()\n{RUN}"
    ),
    "blocks": Shape(f"{BLOCKS}{ROOT}{MARK}extra.cuda()\n{RUN}"),
    "one block": Shape(f"{BLOCKS}{ROOT}{MARK}extra[0].cuda()\n{RUN}"),
    "blocks without a root": Shape(f"{BLOCKS}{MARK}extra.cuda()\n{RUN}"),
    "an option to offload": Shape(f"{OPTION}{MARK}extra.cuda()\n{RUN}"),
    "FSDP1": Shape(f"{WRAPPED}{MARK}extra.cuda()\n{RUN}"),
    "helpers": Shape(
        f"extra = offloaded({LINEAR})\nplaced(extra, 'cuda')\n{RUN}",
        "def offloaded(module):\n"
        f"    {FSDP}.fully_shard(module, offload_policy={POLICY})\n    return module\n\n\n"
        f"def placed(module, device):\n    return {MARK}module.to(device)\n",
    ),
    "a class": Shape(
        "Extra().step()\n",
        "class Extra:\n    def __init__(self):\n        self.device = torch.device('cuda')\n"
        f"        self.model = {LINEAR}\n"
        f"        {FSDP}.fully_shard(self.model, offload_policy={POLICY})\n"
        f"        self.model = {MARK}self.model.to(self.device)\n\n    def step(self):\n"
        "        self.model(torch.ones(2, 4)).sum().backward()\n",
    ),
    "another file": Shape(
        f"import my_offload\nextra = my_offload.offloaded({LINEAR})\n{MARK}extra.cuda()\n{RUN}",
        beside="from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard\n\n\n"
        "def offloaded(module):\n    settings = {'offload_policy': CPUOffloadPolicy()}\n"
        "    fully_shard(module, **settings)\n    return module\n",
    ),
}
LEGAL = {
    "moved before": Shape(
        f"extra = {FSDP}.fully_shard({LINEAR}.cuda(), offload_policy={POLICY})\n{RUN}"
    ),
    "moved back": Shape(f"{EXTRA}extra.cuda()\nextra.cpu()\n{RUN}"),
    "a dtype": Shape(f"{EXTRA}extra.to(torch.bfloat16)\n{RUN}"),
    "a device that is not known": Shape(f"{EXTRA}extra.to(os.environ['DEVICE'])\n{RUN}"),
    "a model on the device": Shape(f"extra = {FSDP}.fully_shard({LINEAR})\nextra.cuda()\n{RUN}"),
    "moved where nothing is offloaded": Shape(
        f"{OPTION}if 'OFFLOAD' not in os.environ:\n    extra.cuda()\n{RUN}"
    ),
    "FSDP1 that offloads nothing": Shape(WRAPPED.replace("True", "False") + f"extra.cuda()\n{RUN}"),
    "a batch": Shape(f"{EXTRA}extra(torch.ones(2, 4).to('cuda')).sum().backward()\n"),
}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    for module, call, wrong, kind, shape in drawn(program, random, WRONG, LEGAL):
        edits = [behind(module, call, shape.lines)]
        text = module.edited(edits, "import os, torch, torch.distributed.fsdp", shape.helper)
        texts = with_beside(program, module, text, "my_offload.py", shape.beside)
        yield mutant(program, RULE if wrong else "", f"moved: {kind}", texts)
