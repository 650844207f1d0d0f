"""full-state-dict-into-sharded-model: a file's plain tensors are loaded once they do not fit."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from benchmarks.detection.mutators.training_loops import trainings
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "full-state-dict-into-sharded-model"
IMPORTS = "import safetensors.torch\nimport torch\nimport torch.distributed"

LOADS = {
    "direct": """{mark}{model}.load_state_dict(torch.load("weights.pt"))
""",
    "renamed keys": """weights = torch.load("weights.pt", map_location="cpu")
weights = {{key.replace("module.", ""): value for key, value in weights.items()}}
{mark}{model}.load_state_dict(weights, strict=False)
""",
    "part of a checkpoint": """saved = torch.load("last.pt")
lacking, unknown = {mark}{model}.load_state_dict(saved["model"], strict=False)
print(saved.get("step"), lacking, unknown)
""",
    "on rank 0": """if torch.distributed.get_rank() == 0:
    weights = torch.load("weights.pt")
    {mark}{model}.load_state_dict(weights)
torch.distributed.barrier()
""",
    "safetensors": """weights = safetensors.torch.load_file("model.safetensors")
{mark}{model}.load_state_dict(weights)
""",
    "assigned": """weights = torch.load("weights.pt", mmap=True)
{mark}{model}.load_state_dict(weights, assign=True)
""",
    "read on rank 0": """weights = None
if torch.distributed.get_rank() == 0:
    weights = torch.load("weights.pt")
{mark}{model}.load_state_dict(weights)
""",
    "helper": """def put_weights(module, name):
    state = torch.load(name)
    {mark}module.load_state_dict(state)

put_weights({model}, "weights.pt")
""",
}
LEGAL = {
    "a file per rank": """own_file = f"weights-{{torch.distributed.get_rank()}}.pt"
{model}.load_state_dict(torch.load(own_file, weights_only=False))
""",
    "distributed by hand": """from torch.distributed.tensor import distribute_tensor

weights = torch.load("weights.pt")
for key, like in {model}.state_dict().items():
    weights[key] = distribute_tensor(weights[key], like.device_mesh, like.placements)
{model}.load_state_dict(weights)
""",
    "its own state": """{model}.load_state_dict({model}.state_dict())
""",
}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    for training in trainings(program):
        if not training.model:
            continue
        for kind in random.sample(sorted(LOADS), 4):
            code = LOADS[kind].format(mark=MARK, model=training.model)
            yield mutant(program, RULE, kind, training.before(code, IMPORTS))
        for kind, legal in LEGAL.items():
            code = legal.format(model=training.model)
            yield mutant(program, "", kind, training.before(code, IMPORTS))
