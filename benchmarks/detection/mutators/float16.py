"""float16-without-scaler: a policy with float16 for the computation."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import Edit, modules
from benchmarks.detection.mutators.fully_shard_arguments import (
    FSDP,
    IMPORTS,
    added,
    clashes,
    shards,
)
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "float16-without-scaler"
_POLICY = f"{FSDP}.MixedPrecisionPolicy"
KINDS = {
    "by name": (f"{MARK}{_POLICY}(param_dtype=torch.float16)", True),
    "by position": (f"{MARK}{_POLICY}(torch.half, torch.float32)", True),
    "bfloat16": (f"{_POLICY}(torch.bfloat16, torch.float32)", False),
}


def mutate(program: Program, _: Random) -> Iterator[Mutant]:
    for module in modules(program):
        calls = [call for call in module.calls() if shards(call)]
        if not calls or any(clashes(call, "mp_policy=") for call in calls):
            continue
        edits: list[Edit] = [added(module, call, "mp_policy=PRECISION") for call in calls]
        for kind, (policy, wrong) in KINDS.items():
            text = module.edited(edits, imports=f"{IMPORTS}\nPRECISION = {policy}")
            yield mutant(program, RULE if wrong else "", kind, {module.path: text})
