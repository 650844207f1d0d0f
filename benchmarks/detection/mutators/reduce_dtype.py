"""low-precision-reduce: a policy with a low precision for the gradients' sum."""

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

RULE = "low-precision-reduce"
_POLICY = f"{FSDP}.MixedPrecisionPolicy"
KINDS = {
    "by name": (f"{MARK}{_POLICY}(reduce_dtype=torch.bfloat16)", True),
    "by position": (f"{MARK}{_POLICY}(None, torch.float16)", True),
    "in full": (f"{_POLICY}(None, torch.float32)", False),
    "of the outputs": (f"{_POLICY}(output_dtype=torch.float32)", False),
}


def mutate(program: Program, _: Random) -> Iterator[Mutant]:
    for module in modules(program):
        calls = [call for call in module.calls() if shards(call)]
        if not calls or any(clashes(call, "mp_policy=") for call in calls):
            continue
        edits: list[Edit] = [added(module, call, "mp_policy=PRECISION") for call in calls]
        for kind, (policy, low) in KINDS.items():
            text = module.edited(edits, imports=f"{IMPORTS}\nPRECISION = {policy}")
            yield mutant(program, RULE if low else "", kind, {module.path: text})
