"""blocks-kept-unsharded: the calls that shard the blocks say that they stay gathered."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import Edit, Module, modules
from benchmarks.detection.mutators.fully_shard_arguments import added, clashes, shards
from benchmarks.detection.mutators.only_root import sharding
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "blocks-kept-unsharded"
KEYWORD = "reshard_after_forward"
# How the argument is given, with the lines at the top that it needs.
WRONG = {
    "literal": (f"{KEYWORD}=False", ""),
    "variable": (f"{KEYWORD}=RESHARD", "RESHARD = False"),
    "turned": (f"{KEYWORD}=not KEEP", "KEEP = True"),
    "settings": ("**SETTINGS", f'SETTINGS = {{"{KEYWORD}": False}}'),
    "partial": (
        "",
        "import functools\n"
        "import torch.distributed.fsdp\n"
        f"kept = functools.partial(torch.distributed.fsdp.fully_shard, {KEYWORD}=False)",
    ),
}
LEGAL = {"resharded": (f"{KEYWORD}=True", ""), "in nodes": (f"{KEYWORD}=2", "")}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    for module in modules(program):
        roots, children = sharding(program, module)
        if not (roots and children):
            continue
        inner = [call for call in module.calls() if shards(call) and call not in roots]
        for kind in random.sample(sorted(WRONG), 3):
            argument, top = WRONG[kind]
            edits = [edit for call in inner for edit in _given(module, call, argument)]
            yield from _mutant(program, module, RULE, kind, edits, top)
        for kind, (argument, top) in LEGAL.items():
            edits = [edit for call in inner for edit in _given(module, call, argument)]
            unmarked = [(start, end, text.replace(MARK, "")) for start, end, text in edits]
            yield from _mutant(program, module, "", kind, unmarked, top)
        own = [root for root in roots if shards(root) and not clashes(root, f"{KEYWORD}=False")]
        kept = [added(module, root, f"{KEYWORD}=False") for root in own]
        yield from _mutant(program, module, "", "root only", kept, "")


def _given(module: Module, call: ast.Call, argument: str) -> Iterator[Edit]:
    """The argument in the place of what the call says of it so far; without one, a partial."""
    start = module.span(call)[0]
    if argument:
        yield start, start, MARK
    else:
        yield (*module.span(call.func), f"{MARK}kept")
    said = [each for each in call.keywords if each.arg == KEYWORD]
    if argument and not said:
        yield added(module, call, argument)
    for each in said if argument else ():
        begin = module.lines[each.lineno - 1] + each.col_offset
        yield begin, module.span(each.value)[1], argument


def _mutant(
    program: Program, module: Module, rule: str, kind: str, edits: list[Edit], top: str
) -> Iterator[Mutant]:
    if edits:
        yield mutant(program, rule, kind, {module.path: module.edited(edits, imports=top)})
