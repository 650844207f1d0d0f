"""Policies: a low precision for the gradients' sum, and float16 without a scaler."""

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

REDUCE, FLOAT16 = "low-precision-reduce", "float16-without-scaler"
_POLICY = f"{FSDP}.MixedPrecisionPolicy"
KINDS = {
    "by name": (f"{MARK}{_POLICY}(reduce_dtype=torch.bfloat16)", REDUCE),
    "by position": (f"{MARK}{_POLICY}(None, torch.float16)", REDUCE),
    "in full": (f"{_POLICY}(None, torch.float32)", ""),
    "of the outputs": (f"{_POLICY}(output_dtype=torch.float32)", ""),
    "in float16": (f"{MARK}{_POLICY}(param_dtype=torch.float16)", FLOAT16),
    "in half": (f"{MARK}{_POLICY}(torch.half, torch.float32)", FLOAT16),
    "in bfloat16": (f"{_POLICY}(torch.bfloat16, torch.float32)", ""),
}


def mutate(program: Program, _: Random) -> Iterator[Mutant]:
    for module in modules(program):
        calls = [call for call in module.calls() if shards(call)]
        if not calls or any(clashes(call, "mp_policy=") for call in calls):
            continue
        edits: list[Edit] = [added(module, call, "mp_policy=PRECISION") for call in calls]
        for kind, (policy, rule) in KINDS.items():
            text = module.edited(edits, imports=f"{IMPORTS}\nPRECISION = {policy}")
            yield mutant(program, rule, kind, {module.path: text})
