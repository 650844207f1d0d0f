"""backward-not-finalized: the end of each backward is left to the program, which has none."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from benchmarks.detection.mutators.training_loops import trainings
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "backward-not-finalized"
WRONG = {
    "by position": "{mark}{model}.set_manual_backward_finalization(True)\n",
    "by name": "{mark}{model}.set_manual_backward_finalization(enabled=True)\n",
    "by setting": "manual = True\n{mark}{model}.set_manual_backward_finalization(manual)\n",
    "helper": """def by_hand(root):
    {mark}root.set_manual_backward_finalization(True)

by_hand({model})
""",
}
OFF = "{model}.set_manual_backward_finalization(False)\n"
AND_OFF = "{model}.set_manual_backward_finalization(True)\n" + OFF
FINALIZED = "{model}.finalize_backward()\n"


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    if any("FullyShardedDataParallel" in text for text in program.files.values()):
        return
    for training in trainings(program):
        if not training.model:
            continue
        for kind in random.sample(sorted(WRONG), 3):
            text = WRONG[kind].format(mark=MARK, model=training.model)
            yield mutant(program, RULE, kind, training.before(text, ""))
        for kind, code in {"off": OFF, "on and off": AND_OFF}.items():
            text = code.format(model=training.model)
            yield mutant(program, "", kind, training.before(text, ""))
        on = WRONG["by position"].format(mark="", model=training.model)
        places = [(training.start, on), (training.step, FINALIZED.format(model=training.model))]
        edits = [
            (at := training.module.rows(node)[0], at, training.module.indent(node) + text)
            for node, text in places
        ]
        finalized = {training.module.path: training.module.edited(edits)}
        yield mutant(program, "", "finalized", finalized)
