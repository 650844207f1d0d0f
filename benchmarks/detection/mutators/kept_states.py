"""kept-state-is-live: states that are kept while the model trains, without a copy."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from benchmarks.detection.mutators.training_loops import trainings
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "kept-state-is-live"
IMPORTS = "import copy\nfrom torch.distributed.checkpoint.state_dict import get_model_state_dict\n"
# What is above the loops that train, and what is behind the step.
WRONG = {
    "lerp": (
        "average = {mark}{model}.state_dict()\n",
        """for key, weight in {model}.state_dict().items():
    average[key].lerp_(weight, 0.01)
""",
    ),
    "two steps": (
        "average = {{key: weight for key, weight in {mark}{model}.state_dict().items()}}\n",
        """for key, weight in {model}.named_parameters():
    average[key].mul_(0.99).add_(weight.detach(), alpha=0.01)
""",
    ),
    "undone": (
        "before = {mark}get_model_state_dict({model})\n",
        "{model}.load_state_dict(before)\n",
    ),
    "shallow": (
        "before = copy.copy({mark}{model}.state_dict())\n",
        "{model}.load_state_dict(before)\n",
    ),
}
LEGAL = {
    "cloned": (
        "average = {{k: w.clone() for k, w in {model}.state_dict().items()}}\n",
        """for key, weight in {model}.state_dict().items():
    average[key].lerp_(weight, 0.01)
""",
    ),
    "deep": (
        "before = copy.deepcopy({model}.state_dict())\n",
        "{model}.load_state_dict(before)\n",
    ),
    "in place": (
        "weights = {model}.state_dict()\n",
        "for weight in weights.values():\n    weight.mul_(0.999)\n",
    ),
}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    if any("FullyShardedDataParallel" in text for text in program.files.values()):
        return  # it gathers its state, which is a copy
    for training in trainings(program):
        if not training.model:
            continue
        chosen = [(RULE, kind, WRONG[kind]) for kind in random.sample(sorted(WRONG), 3)]
        for rule, kind, code in (*chosen, *(("", kind, code) for kind, code in LEGAL.items())):
            above, behind = (text.format(mark=MARK, model=training.model) for text in code)
            yield mutant(program, rule, kind, training.around(above, behind, IMPORTS))
