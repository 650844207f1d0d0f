"""dtensor-data-assigned: new values are assigned to the `data` of sharded parameters."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from benchmarks.detection.mutators.training_loops import put_after
from benchmarks.detection.program import Mutant, Program

RULE = "dtensor-data-assigned"
IMPORTS = "import torch\nfrom torch.distributed.tensor import DTensor\n"
WRONG = {
    "loop": """for parameter in {model}.parameters():
    {mark}parameter.data = parameter.data - 0.001 * torch.randn_like(parameter)
""",
    "by name": """averaged = dict()
for key, p in {model}.named_parameters():
    averaged[key] = p.detach().clone()
for key, parameter in {model}.named_parameters():
    {mark}parameter.data = averaged[key]
""",
    "zip": """kept = [p.detach().clone() for p in {model}.parameters()]
for old, parameter in zip(kept, {model}.parameters()):
    {mark}parameter.data = old
""",
    "from a file": """values = torch.load("weights.pt")
for key, parameter in {model}.named_parameters():
    {mark}parameter.data = values[key]
""",
    "helper": """def put_back(module, values):
    with torch.no_grad():
        for parameter, value in zip(module.parameters(), values):
            {mark}parameter.data = value

put_back({model}, [p.detach().clone() for p in {model}.parameters()])
""",
}
LEGAL = {
    "in place": """for parameter in {model}.parameters():
    parameter.data.mul_(0.999)
    parameter.data -= 0.001
""",
    "asked": """for parameter in {model}.parameters():
    if not isinstance(parameter, DTensor):
        parameter.data = parameter.data * 0.999
""",
    "gradients": """for parameter in {model}.parameters():
    if parameter.grad is not None:
        parameter.grad.data = parameter.grad.data * 0.5
""",
}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    if any("FullyShardedDataParallel" in text for text in program.files.values()):
        return  # its parameters are no DTensors
    yield from put_after(program, random, RULE, IMPORTS, WRONG, LEGAL)
