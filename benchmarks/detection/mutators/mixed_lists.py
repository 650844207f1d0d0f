"""foreach-with-mixed-parameters: the root ignores a layer, and clipping takes all parameters."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import Module, modules, name_of
from benchmarks.detection.mutators.fsdp1_clip import steps
from benchmarks.detection.mutators.only_root import sharding
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "foreach-with-mixed-parameters"
IGNORED = {
    "parameters": "set({model}.{layer}.parameters())",
    "listed": "{{*{model}.{layer}.parameters()}}",
    "one": "{{{model}.{layer}.weight}}",
}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    if "FullyShardedDataParallel" in "".join(program.files.values()):
        return  # which torch's clipping does not fit anyway
    everything = modules(program)
    layers = sorted({layer for module in everything for layer in _layers(module)})
    for module in everything:
        roots, children = sharding(program, module)
        if len(roots) != 1 or not children:
            continue
        root, model = roots[0], module.source(roots[0].args[0])
        owned = [layer for layer in layers if _is_owned(everything, children, layer)]
        for kind in sorted(IGNORED) if owned else ():
            given = IGNORED[kind].format(model=model, layer=random.choice(owned))
            end = module.span(root)[1] - 1
            edit = (end, end, f", ignored_params={given}")
            for wrong in (True, False):
                files = _clipped(program, everything, module, edit, wrong=wrong)
                if files:
                    yield mutant(program, RULE if wrong else "", kind, files)


def _layers(module: Module) -> Iterator[str]:
    """Attributes that are assigned a linear layer or an embedding."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            target = node.targets[0]
            if isinstance(target, ast.Attribute) and name_of(node.value) in ("Linear", "Embedding"):
                yield target.attr


def _is_owned(everything: list[Module], children: list[ast.stmt], layer: str) -> bool:
    """Whether a layer is one of the class that has the containers of blocks."""
    loops = [ast.unparse(child.iter) for child in children if isinstance(child, ast.For)]
    containers = {loop.rpartition(".")[2] for loop in loops}
    for module in everything:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                own = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
                if layer in own and containers & own:
                    return True
    return False


def _clipped(
    program: Program,
    everything: list[Module],
    module: Module,
    edit: tuple[int, int, str],
    *,
    wrong: bool,
) -> dict[str, str]:
    """The files with the clipping before each step, or by value of the ignored ones only."""
    edits = {module.path: [edit]}
    for each in everything:
        for call in each.calls():
            if name_of(call) == "clip_grad_norm_":
                edits.setdefault(each.path, []).append((*each.span(call), "torch.zeros(())"))
        for step in steps(program, each) if wrong else ():
            start, _ = each.rows(step.statement)
            line = f"{MARK}torch.nn.utils.clip_grad_norm_({step.model}.parameters(), 1.0)"
            text = f"{each.indent(step.statement)}{line}\n"
            edits.setdefault(each.path, []).append((start, start, text))
    if wrong and not any(MARK in text for each in edits.values() for _, _, text in each):
        return {}
    found = {m.path: m for m in everything}
    return {path: found[path].edited(own, imports="import torch") for path, own in edits.items()}
