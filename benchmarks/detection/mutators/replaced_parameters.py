"""parameters-replaced-after-optimizer: a load assigns parameters that no optimizer holds."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from benchmarks.detection.mutators.training_loops import trainings
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "parameters-replaced-after-optimizer"
IMPORTS = "import torch\nimport torch.distributed"

LOADS = {
    "distributed by hand": """from torch.distributed.tensor import distribute_tensor

weights = torch.load("weights.pt")
for key, like in {model}.state_dict().items():
    weights[key] = distribute_tensor(weights[key], like.device_mesh, like.placements)
{mark}{model}.load_state_dict(weights, assign=True)
""",
    "a file per rank": """own_file = f"weights-{{torch.distributed.get_rank()}}.pt"
{mark}{model}.load_state_dict(torch.load(own_file, weights_only=False), True, True)
""",
    "where there is one": """import os

own_file = f"weights-{{torch.distributed.get_rank()}}.pt"
if os.path.exists(own_file):
    print({mark}{model}.load_state_dict(torch.load(own_file), strict=False, assign=True))
""",
    "its own state": """{mark}{model}.load_state_dict({model}.state_dict(), assign=True)
""",
    "helper": """def put_slices(module, state):
    {mark}module.load_state_dict(state, assign=True)

put_slices({model}, torch.load(f"weights-{{torch.distributed.get_rank()}}.pt"))
""",
}
LEGAL = {
    "copied": """{model}.load_state_dict({model}.state_dict(), assign=False)
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
