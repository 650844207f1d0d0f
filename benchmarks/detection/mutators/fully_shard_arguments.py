"""fsdp1-argument-to-fully-shard: a sharding call that says it as FSDP1 does."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import Edit, Module, modules, name_of
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "fsdp1-argument-to-fully-shard"
FSDP = "torch.distributed.fsdp"
IMPORTS = "import torch\nimport torch.distributed.fsdp"
_PRECISION = f"{FSDP}.MixedPrecision(param_dtype=torch.bfloat16, buffer_dtype=torch.float32)"
WRONG = {
    "mixed precision": f"mixed_precision={_PRECISION}",
    "offload": f"cpu_offload={FSDP}.CPUOffload(offload_params=True)",
    "offload flag": "cpu_offload=False",
    "strategy": f"sharding_strategy={FSDP}.ShardingStrategy.FULL_SHARD",
    "gradients only": f"sharding_strategy={FSDP}.ShardingStrategy.SHARD_GRAD_OP",
    "tuned": "device_id=torch.device('cpu'), use_orig_params=True, limit_all_gathers=True",
    "policy": f"auto_wrap_policy={FSDP}.wrap.size_based_auto_wrap_policy",
    "sync": "sync_module_states=True",
}
LEGAL = {
    "own precision": f"mp_policy={FSDP}.MixedPrecisionPolicy(output_dtype=torch.float32)",
    "own offload": f"offload_policy={FSDP}.OffloadPolicy()",
}
_TAKEN = {
    "mixed_precision": "mp_policy",
    "mp_policy": "mp_policy",
    "cpu_offload": "offload_policy",
    "offload_policy": "offload_policy",
    "sharding_strategy": "reshard_after_forward",
}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    for module in modules(program):
        calls = [call for call in module.calls() if shards(call)]
        for call in calls:
            for kind in random.sample(sorted(WRONG), 3):
                yield from _mutant(program, module, call, RULE, kind, WRONG[kind])
            yield from _renamed(program, module, call)
        for kind, text in LEGAL.items() if len(calls) > 1 else ():
            yield from _everywhere(program, module, calls, kind, text)


def shards(call: ast.Call) -> bool:
    """Whether a call shards what it is given first."""
    return name_of(call) == "fully_shard" and bool(call.args)


def _mutant(
    program: Program, module: Module, call: ast.Call, rule: str, kind: str, argument: str
) -> Iterator[Mutant]:
    if not clashes(call, argument):
        start, _ = module.span(call)
        edits = [(start, start, MARK), added(module, call, argument)]
        yield mutant(program, rule, kind, {module.path: module.edited(edits, imports=IMPORTS)})


def _everywhere(
    program: Program, module: Module, calls: list[ast.Call], kind: str, argument: str
) -> Iterator[Mutant]:
    if not any(clashes(call, argument) for call in calls):
        edits = [added(module, call, argument) for call in calls]
        yield mutant(program, "", kind, {module.path: module.edited(edits, imports=IMPORTS)})


def clashes(call: ast.Call, argument: str) -> bool:
    """Whether a call has, or may have, what ``argument`` stands for."""
    given = {keyword.arg for keyword in call.keywords}
    name = argument.partition("=")[0]
    return bool({name, _TAKEN.get(name, name), None} & given)


def added(module: Module, call: ast.Call, argument: str) -> Edit:
    """Gives ``argument`` behind the module."""
    end = module.span(call.args[0])[1]
    return end, end, f", {argument}"


def _renamed(program: Program, module: Module, call: ast.Call) -> Iterator[Mutant]:
    """The mesh by FSDP1's name, and by position."""
    start, _ = module.span(call)
    for keyword in call.keywords:
        if keyword.arg != "mesh":
            continue
        name = module.lines[keyword.lineno - 1] + keyword.col_offset
        edits = [(start, start, MARK), (name, name, "device_")]
        yield mutant(program, RULE, "device_mesh", {module.path: module.edited(edits)})
        if call.keywords[0] is keyword:
            edits = [(start, start, MARK), (name, name + len("mesh="), "")]
            yield mutant(program, RULE, "mesh by position", {module.path: module.edited(edits)})
