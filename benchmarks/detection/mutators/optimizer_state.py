"""optimizer-state-saved-raw: moments are written by one rank, or read by all, as they are."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from benchmarks.detection.mutators.training_loops import Training, trainings
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "optimizer-state-saved-raw"
IMPORTS = "import pickle\n\nimport torch\nimport torch.distributed"

SAVES = {
    "guarded": """if torch.distributed.get_rank() == 0:
    {mark}torch.save({optimizer}.state_dict(), "moments.pt")
""",
    "in a dict": """moments = {{"optimizer": {optimizer}.state_dict(), "done": False}}
if torch.distributed.get_rank() == 0:
    {mark}torch.save(moments, "moments.pt")
""",
    "by every rank": """{mark}torch.save({optimizer}.state_dict(), "moments.pt")
""",
    "pickled": """if not torch.distributed.get_rank():
    with open("moments.pkl", "wb") as moments_file:
        {mark}pickle.dump({optimizer}.state_dict(), moments_file)
""",
    "early exit": """def write_moments(chosen):
    if torch.distributed.get_rank() != 0:
        return
    {mark}torch.save(chosen.state_dict(), "moments.pt")

write_moments({optimizer})
""",
}
LOADS = {
    "loaded": """{mark}{optimizer}.load_state_dict(torch.load("moments.pt"))
""",
    "loaded from a checkpoint": """saved = torch.load("last.pt", map_location="cpu")
if saved.get("optimizer") is not None:
    {mark}{optimizer}.load_state_dict(saved["optimizer"])
""",
    "loaded by a helper": """def read_moments(name):
    return torch.load(name)

{mark}{optimizer}.load_state_dict(read_moments("moments.pt"))
""",
    "loaded from a pickle": """with open("moments.pkl", "rb") as moments_file:
    {mark}{optimizer}.load_state_dict(pickle.load(moments_file))
""",
}
LEGAL = {
    "a file per rank": """moments_path = f"moments-{{torch.distributed.get_rank()}}.pt"
{optimizer}.load_state_dict(torch.load(moments_path))
torch.save({optimizer}.state_dict(), moments_path)
""",
    "unknown code cuts": """from checkpoints import cut

{optimizer}.load_state_dict(cut(torch.load("moments.pt")))
""",
}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    for training in trainings(program):
        for kind in random.sample(sorted(SAVES), 3):
            changed = training.after(_filled(SAVES[kind], training), IMPORTS)
            yield mutant(program, RULE, kind, changed)
        for kind in random.sample(sorted(LOADS), 2):
            changed = training.before(_filled(LOADS[kind], training), IMPORTS)
            yield mutant(program, RULE, kind, changed)
        for kind, code in LEGAL.items():
            yield mutant(program, "", kind, training.before(_filled(code, training), IMPORTS))


def _filled(code: str, training: Training) -> str:
    return code.format(mark=MARK, optimizer=training.optimizer)
