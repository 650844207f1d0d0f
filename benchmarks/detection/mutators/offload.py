"""A model kept on the CPU, whose gradients are clipped over NCCL alone, written in many ways."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from benchmarks.detection.mutators.starts import behind, drawn, with_beside
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "cpu-offload-without-cpu-backend"
MAKES = "torch.distributed.init_process_group"
FSDP = "torch.distributed.fsdp"
POLICY = f"{FSDP}.CPUOffloadPolicy()"
MADE = f"{MAKES}({MARK}'nccl')"
EXTRA = f"extra = {FSDP}.fully_shard(torch.nn.Linear(4, 4), offload_policy={POLICY})\n"
CLIP = "torch.nn.utils.clip_grad_norm_(extra.parameters(), 1.0)\n"


@dataclass(frozen=True, slots=True)
class Shape:
    """What makes the process group, and what trains behind it.

    Attributes:
        call: stands in the place of the call that made the group.
        lines: stand behind it.
        helper: stands at the top level, before the first definition.
        beside: the text of a further file, my_parallel.py.
    """

    call: str = MADE
    lines: str = EXTRA + CLIP
    helper: str = ""
    beside: str = ""


WRONG = {
    "all in one place": Shape(),
    "a backend of one device": Shape(f"{MAKES}(backend={MARK}'cuda:nccl')"),
    "a name of a backend": Shape(f"{MAKES}(backend={MARK}torch.distributed.Backend.NCCL)"),
    "a constant": Shape(f"{MAKES}({MARK}BACKEND)", helper='BACKEND = "nccl"\n'),
    "CUDA if there is some": Shape(
        f"{MAKES}({MARK}'nccl' if torch.cuda.is_available() else 'gloo')"
    ),
    "settings of the group": Shape(
        f"{MARK}{MAKES}(**GROUP)", helper="GROUP = {'backend': 'nccl', 'init_method': 'env://'}\n"
    ),
    "settings of the sharding": Shape(
        lines="settings = {'reshard_after_forward': True}\n"
        f"settings['offload_policy'] = {POLICY}\n"
        f"extra = {FSDP}.fully_shard(torch.nn.Linear(4, 4), **settings)\n" + CLIP
    ),
    "an option to offload": Shape(
        lines=f"policy = {POLICY} if 'OFFLOAD' in os.environ else {FSDP}.OffloadPolicy()\n"
        f"extra = {FSDP}.fully_shard(torch.nn.Linear(4, 4), offload_policy=policy)\n" + CLIP
    ),
    "helpers": Shape(
        "meet()",
        "extra = offloaded(torch.nn.Linear(4, 4))\nclip(extra, 1.0)\n",
        f"def meet(backend='nccl'):\n    {MAKES}({MARK}backend)\n\n\n"
        f"def offloaded(module):\n    policy = {POLICY}\n"
        f"    {FSDP}.fully_shard(module, offload_policy=policy)\n    return module\n\n\n"
        "def clip(module, most):\n"
        "    return torch.nn.utils.clip_grad_norm_(module.parameters(), most)\n",
    ),
    "another file": Shape(
        lines="import my_parallel\nextra = my_parallel.offloaded(torch.nn.Linear(4, 4))\n" + CLIP,
        beside="from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard\n\n\n"
        "def offloaded(module):\n"
        "    fully_shard(module, offload_policy=CPUOffloadPolicy(pin_memory=False))\n"
        "    return module\n",
    ),
    "a partial": Shape(
        lines=f"import functools\noffloading = functools.partial({FSDP}.fully_shard, "
        f"offload_policy={POLICY})\nextra = offloading(torch.nn.Linear(4, 4))\n" + CLIP
    ),
    "a class": Shape(
        lines="Extra().step()\n",
        helper="class Extra:\n    def __init__(self):\n"
        f"        self.model = {FSDP}.fully_shard(\n            torch.nn.Linear(4, 4), "
        f"offload_policy={POLICY}\n        )\n        self.most = 1.0\n\n    def step(self):\n"
        "        parameters = list(self.model.parameters())\n"
        "        torch.nn.utils.clip_grad_norm_(parameters, self.most)\n",
    ),
    "parameters that have gradients": Shape(
        lines=EXTRA + "trained = [p for p in extra.parameters() if p.grad is not None]\n"
        "torch.nn.utils.clip_grad_norm_(trained, 1.0)\n"
    ),
    "blocks": Shape(
        lines="extra = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))\n"
        f"policy = {POLICY}\nfor each in extra:\n"
        f"    {FSDP}.fully_shard(each, offload_policy=policy)\n"
        f"{FSDP}.fully_shard(extra, offload_policy=policy)\n" + CLIP
    ),
    "where there is none yet": Shape(
        "meet()",
        helper="def meet():\n    if not torch.distributed.is_initialized():\n"
        f"        {MAKES}(backend={MARK}'nccl')\n",
    ),
}
LEGAL = {
    "both backends": Shape(f"{MAKES}('cpu:gloo,cuda:nccl')"),
    "every backend": Shape(f"{MAKES}()"),
    "a backend for those who offload": Shape(
        f"{MAKES}('cpu:gloo,cuda:nccl' if 'OFFLOAD' in os.environ else 'nccl')",
        WRONG["an option to offload"].lines,
    ),
    "a group for those who offload": Shape(
        "meet('OFFLOAD' in os.environ)",
        WRONG["an option to offload"].lines,
        "def meet(offload):\n    if offload:\n"
        f"        {MAKES}('cpu:gloo,cuda:nccl')\n    else:\n        {MAKES}('nccl')\n",
    ),
    "no clipping": Shape(lines=EXTRA),
    "a model on the device": Shape(
        lines=f"extra = {FSDP}.fully_shard(torch.nn.Linear(4, 4))\n" + CLIP
    ),
}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    for module, call, wrong, kind, shape in drawn(program, random, WRONG, LEGAL):
        edits = [(*module.span(call), shape.call), behind(module, call, shape.lines)]
        text = module.edited(edits, "import os, torch, torch.distributed.fsdp", shape.helper)
        texts = with_beside(program, module, text, "my_parallel.py", shape.beside)
        yield mutant(program, RULE if wrong else "", f"offloaded by {kind}", texts)
