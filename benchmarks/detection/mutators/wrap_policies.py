"""wrap-policy-called: FSDP1 gets what a policy returns, or a set of classes, for a policy."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import modules, name_of
from benchmarks.detection.mutators.only_root import WRAPPERS
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "wrap-policy-called"
WRAP = "torch.distributed.fsdp.wrap"
CALLED = {
    "size": f"{MARK}{WRAP}.size_based_auto_wrap_policy(min_num_params=1000)",
    "size, by position": f"{MARK}{WRAP}.size_based_auto_wrap_policy(1000)",
    "transformer": f"{MARK}{WRAP}.transformer_auto_wrap_policy("
    "transformer_layer_cls={torch.nn.Linear})",
    "lambda": f"{MARK}{WRAP}.lambda_auto_wrap_policy(lambda_fn=callable)",
    "set": "{torch.nn.Linear}",
}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    del random  # nothing is drawn
    for module in modules(program):
        for call in module.calls():
            given = [k for k in call.keywords if k.arg == "auto_wrap_policy"]
            if name_of(call) not in WRAPPERS or not given:
                continue
            start = module.span(call)[0]
            for kind, text in CALLED.items():
                edits = [(*module.span(given[0].value), text)]
                if MARK not in text:
                    edits.append((start, start, MARK))
                made = module.edited(edits, imports=f"import {WRAP}")
                yield mutant(program, RULE, kind, {module.path: made})
