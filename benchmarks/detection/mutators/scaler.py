"""grad-scaler-on-fsdp1: torch's scaler steps the optimizer of a model that FSDP1 wraps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from benchmarks.detection.module import modules
from benchmarks.detection.mutators.fsdp1_clip import Clip, Step, made_fsdp1, steps
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "grad-scaler-on-fsdp1"


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    everything = modules(program)
    for module in everything:
        for step in steps(program, module):
            for variant in random.sample(WRONG, 4) + random.sample(LEGAL, 2):
                files = made_fsdp1(program, everything, module, step, variant(step))
                if files is not None:
                    rule = RULE if variant in WRONG else ""
                    yield mutant(program, rule, variant.__name__.strip("_"), files)


def _scaled(step: Step, made: str, imports: str = "import torch", helper: str = "") -> Clip:
    lines = (
        f"scaler = {made}",
        f"scaler.unscale_({step.optimizer})",
        f"scaler.step({step.optimizer})",
        "scaler.update()",
    )
    return Clip(lines, imports, helper)


def _of_cuda(step: Step) -> Clip:
    return _scaled(step, f"{MARK}torch.cuda.amp.GradScaler()")


def _of_amp(step: Step) -> Clip:
    return _scaled(step, f'{MARK}torch.amp.GradScaler("cuda", 1024.0, growth_interval=100)')


def _by_name(step: Step) -> Clip:
    imports = "import torch\nfrom torch.cuda.amp import GradScaler"
    return _scaled(step, f"{MARK}GradScaler(512.0)", imports)


def _where_there_is_cuda(step: Step) -> Clip:
    imports = "import torch\nfrom torch.amp import GradScaler"
    return _scaled(step, f"{MARK}GradScaler(enabled=torch.cuda.is_available())", imports)


def _made_by_helper(step: Step) -> Clip:
    helper = f"""
    def make_scaler(device="cuda"):
        return {MARK}torch.amp.GradScaler(device)
    """
    return _scaled(step, "make_scaler()", helper=helper)


def _sharded(step: Step) -> Clip:
    imports = "from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler"
    return _scaled(step, "ShardedGradScaler()", imports)


def _off(step: Step) -> Clip:
    return _scaled(step, 'torch.amp.GradScaler("cuda", enabled=False)')


def _not_stepped(step: Step) -> Clip:
    lines = ("scaler = torch.cuda.amp.GradScaler()", f"print(scaler.get_scale(), {step.optimizer})")
    return Clip(lines)


Variant = Callable[[Step], Clip]
WRONG: list[Variant] = [_of_cuda, _of_amp, _by_name, _where_there_is_cuda, _made_by_helper]
LEGAL: list[Variant] = [_sharded, _off, _not_stepped]
