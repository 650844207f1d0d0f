"""join-with-fsdp: the training loop in a ``Join`` that raises."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from benchmarks.detection.module import Edit, indented
from benchmarks.detection.mutators.training_loops import Training, trainings
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "join-with-fsdp"
JOIN = "torch.distributed.algorithms.join.Join"
DDP = "torch.nn.parallel.DistributedDataParallel"
ZERO = "torch.distributed.optim.ZeroRedundancyOptimizer"
IMPORTS = (
    "import torch\n"
    "import torch.distributed.algorithms.join\n"
    "import torch.distributed.optim\n"
    "from torch.distributed.algorithms import Join"
)
PROBE = f"probe = {DDP}(torch.nn.Linear(4, 4))"
GROUPED = (
    "group = torch.distributed.new_group()",
    f"probe = {DDP}(torch.nn.Linear(4, 4), process_group=group)",
)


@dataclass(frozen=True, slots=True)
class Kind:
    """The lines above the context, the call that makes it, and a function for the top level."""

    call: str
    lines: tuple[str, ...] = ()
    helper: str = ""


def _states(argument: str) -> str:
    return f"states = {ZERO}(probe.parameters(), torch.optim.SGD, lr=0.1{argument})"


WRONG = {
    "model": Kind("§Join([{model}])"),
    "tuned": Kind(f"§{JOIN}(joinables=[{{model}}], throw_on_early_termination=True)"),
    "variable": Kind("§Join(joined, enable=True)", ("joined = [{optimizer}, {model}]",)),
    "beside replicas": Kind("Join([probe, §{model}])", (PROBE,)),
    "by a helper": Kind(
        "uneven({model})",
        helper="def uneven(*joined):\n    return §Join(list(joined), enable=True)",
    ),
    "settings": Kind(f"§{JOIN}([{{model}}], **settings)", ('settings = {{"enable": True}}',)),
}
LEGAL = {
    "replicas": Kind("Join([probe])", (PROBE,)),
    "one group": Kind("Join([probe, states])", (PROBE, _states(""))),
    "one group of their own": Kind(
        "Join([probe, states])", (*GROUPED, _states(", process_group=group"))
    ),
    "all ranks": Kind(
        "Join([probe, states])",
        (PROBE, _states(", process_group=torch.distributed.group.WORLD")),
    ),
}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    for training in trainings(program):
        for kind in random.sample(sorted(WRONG), 3) if training.model else ():
            yield mutant(program, RULE, kind, _joined(training, WRONG[kind]))
        for kind in random.sample(sorted(LEGAL), 2):
            yield mutant(program, "", kind, _joined(training, LEGAL[kind]))


def _joined(training: Training, kind: Kind) -> dict[str, str]:
    """The file with the loop that trains inside of the context."""
    module, start = training.module, training.start
    first, end = module.rows(start)
    names = {"model": training.model, "optimizer": training.optimizer}
    lines = [line.format(**names) for line in (*kind.lines, f"with {kind.call}:")]
    indent = module.indent(start)
    text = "".join(f"{indent}{line}\n" for line in lines) + indented(module.text[first:end], "    ")
    edit: Edit = (first, end, text.replace("§", MARK))
    helper = kind.helper.replace("§", MARK)
    return {module.path: module.edited([edit], IMPORTS, helper)}
