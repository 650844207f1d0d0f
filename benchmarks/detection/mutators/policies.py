"""fsdp1-policy-object: a sharding call with a policy that it ignores or fails on."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import Edit, Module, modules, name_of
from benchmarks.detection.mutators.fully_shard_arguments import (
    FSDP,
    IMPORTS,
    added,
    clashes,
    shards,
)
from benchmarks.detection.mutators.only_root import WRAPPERS
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "fsdp1-policy-object"
WRONG = {
    "foreign": f"mp_policy=§{FSDP}.MixedPrecision(param_dtype=torch.bfloat16)",
    "foreign with buffers": f"mp_policy=§{FSDP}.MixedPrecision(buffer_dtype=torch.float32)",
    "dtype": "mp_policy=§torch.bfloat16",
    "class": f"mp_policy=§{FSDP}.MixedPrecisionPolicy",
    "offload": f"offload_policy=§{FSDP}.CPUOffload(offload_params=True)",
    "offload flag": "offload_policy=§True",
    "offload class": f"offload_policy=§{FSDP}.CPUOffloadPolicy",
}
WRONG_FSDP1 = {
    "modern": f"mixed_precision=§{FSDP}.MixedPrecisionPolicy(param_dtype=torch.bfloat16)",
    "dtype for FSDP1": "mixed_precision=§torch.bfloat16",
    "flag for FSDP1": "cpu_offload=§True",
    "modern offload": f"cpu_offload=§{FSDP}.CPUOffloadPolicy()",
}
LEGAL = {
    "no offload": "offload_policy=None",
    "default": f"mp_policy={FSDP}.MixedPrecisionPolicy()",
    "empty": f"offload_policy={FSDP}.CPUOffload()",
}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    for module in modules(program):
        for call in module.calls():
            if shards(call):
                for kind in random.sample(sorted(WRONG), 3):
                    yield from _mutant(program, module, call, RULE, kind, WRONG[kind])
            elif name_of(call) in WRAPPERS and call.args:
                for kind, argument in WRONG_FSDP1.items():
                    yield from _mutant(program, module, call, RULE, kind, argument)
        calls = [call for call in module.calls() if shards(call)]
        for kind, argument in LEGAL.items():
            if calls and not any(clashes(call, argument) for call in calls):
                edits = [added(module, call, argument) for call in calls]
                files = {module.path: module.edited(edits, imports=IMPORTS)}
                yield mutant(program, "", kind, files)
    yield from _shared(program)


def _mutant(
    program: Program, module: Module, call: ast.Call, rule: str, kind: str, argument: str
) -> Iterator[Mutant]:
    if clashes(call, argument):
        return
    edits = [added(module, call, argument.replace("§", MARK))]
    yield mutant(program, rule, kind, {module.path: module.edited(edits, imports=IMPORTS)})


def _shared(program: Program) -> Iterator[Mutant]:
    """One object for all calls of a function, from a variable above it."""
    for module in modules(program):
        calls = [call for call in module.calls() if shards(call)]
        if not calls or any(clashes(call, "mp_policy=") for call in calls):
            continue
        edits: list[Edit] = [added(module, call, "mp_policy=PRECISION") for call in calls]
        made = f"{MARK}{FSDP}.MixedPrecision(torch.bfloat16, torch.float32)"
        text = module.edited(edits, imports=f"{IMPORTS}\nPRECISION = {made}")
        yield mutant(program, RULE, "shared", {module.path: text})
