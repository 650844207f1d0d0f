"""wrap-policy-called: FSDP1 gets what a policy returns, or a set of classes, for a policy.

A program of FSDP2 is first made one of FSDP1, whose constructor is where the mistake shows.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from benchmarks.detection.module import Edit, Module, modules, name_of
from benchmarks.detection.mutators.fsdp1_clip import old_clips
from benchmarks.detection.mutators.only_root import WRAPPERS, sharding
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "wrap-policy-called"
FSDP = "torch.distributed.fsdp.FullyShardedDataParallel"
WRAP = "torch.distributed.fsdp.wrap"
IMPORTS = f"import functools\nimport torch\nimport torch.distributed.fsdp\nimport {WRAP}"
CALLED = {
    "size": f"{MARK}{WRAP}.size_based_auto_wrap_policy(min_num_params=1000)",
    "size, by position": f"{MARK}{WRAP}.size_based_auto_wrap_policy(1000)",
    "transformer": f"{MARK}{WRAP}.transformer_auto_wrap_policy("
    "transformer_layer_cls={torch.nn.Linear})",
    "lambda": f"{MARK}{WRAP}.lambda_auto_wrap_policy(lambda_fn=callable)",
    "set": "{torch.nn.Linear}",
}
BOUND = {
    "size": f"functools.partial({WRAP}.size_based_auto_wrap_policy, min_num_params=1000)",
    "classes": f"{WRAP}.ModuleWrapPolicy({{torch.nn.Linear}})",
    "itself": f"{WRAP}.size_based_auto_wrap_policy",
}


@dataclass(frozen=True, slots=True)
class Way:
    """How a policy comes to the wrapper: what is called with which arguments, and lines above."""

    wrapper: str
    given: str
    imports: str = ""
    helper: str = ""


WAYS = {
    "inline": Way(FSDP, "auto_wrap_policy={policy}"),
    "variable": Way(FSDP, "auto_wrap_policy=POLICY", "POLICY = {policy}"),
    "settings": Way(FSDP, "**SETTINGS", 'SETTINGS = {{"auto_wrap_policy": {policy}}}'),
    "partial": Way(
        "wrapped",
        "device_id=torch.device('cpu')",
        f"wrapped = functools.partial({FSDP}, auto_wrap_policy={{policy}})",
    ),
    "function": Way(
        FSDP,
        "auto_wrap_policy=wrapping_policy()",
        helper="def wrapping_policy():\n    return {policy}",
    ),
}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    everything = modules(program)
    for module in everything:
        for call in module.calls():
            given = [k for k in call.keywords if k.arg == "auto_wrap_policy"]
            if name_of(call) in WRAPPERS and given:
                yield from _replaced(program, module, call, given[0].value)
        roots, children = sharding(program, module)
        if len(roots) != 1:
            continue
        for kind, way in WAYS.items():
            policy = random.choice(sorted(CALLED))
            text = _wrapped(module, roots[0], children, way, CALLED[policy])
            files = {**_without_clips(everything), module.path: text}
            yield mutant(program, RULE, f"{policy}, {kind}", files)
        policy, kind = random.choice(sorted(BOUND)), random.choice(sorted(WAYS))
        text = _wrapped(module, roots[0], children, WAYS[kind], BOUND[policy], legal=True)
        files = {**_without_clips(everything), module.path: text}
        yield mutant(program, "", f"{policy}, {kind}", files)


def _without_clips(everything: list[Module]) -> dict[str, str]:
    """The files without torch's clipping, which does not fit FSDP1."""
    return {each.path: each.edited(clips) for each in everything if (clips := [*old_clips(each)])}


def _replaced(
    program: Program, module: Module, call: ast.Call, given: ast.expr
) -> Iterator[Mutant]:
    """FSDP1's own programs, with another policy in the place of theirs."""
    start = module.span(call)[0]
    for kind, text in CALLED.items():
        edits = [(*module.span(given), text)]
        if MARK not in text:
            edits.append((start, start, MARK))
        made = module.edited(edits, imports=f"import {WRAP}")
        yield mutant(program, RULE, kind, {module.path: made})


def _wrapped(
    module: Module,
    root: ast.Call,
    children: list[ast.stmt],
    way: Way,
    policy: str,
    *,
    legal: bool = False,
) -> str:
    """FSDP1 in the place of the root's sharding, and of its blocks'."""
    model = module.source(root.args[0])
    mark = "" if legal or MARK in policy else MARK
    text = f"{mark}{way.wrapper}({model}, {way.given.format(policy=policy)})"
    if isinstance(module.statement(root), ast.Expr):
        text = f"{model} = {text}"
    edits: list[Edit] = [(*module.span(root), text)]
    edits += [(*module.rows(child), "") for child in children]
    edits += old_clips(module)
    imports = f"{IMPORTS}\n{way.imports.format(policy=policy)}".rstrip()
    return module.edited(edits, imports=imports, helper=way.helper.format(policy=policy))
