"""The root ignores a layer.

ignored-parameters: nothing reduces its gradients. foreach-with-mixed-parameters: one operation
takes all parameters.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import Edit, Module, modules, name_of
from benchmarks.detection.mutators.class_checks import Root, roots
from benchmarks.detection.mutators.fsdp1_clip import old_clips
from benchmarks.detection.mutators.only_root import sharding
from benchmarks.detection.mutators.training_loops import trainings
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "foreach-with-mixed-parameters"
UNREDUCED = "ignored-parameters"
IGNORED = {
    "parameters": "set({model}.{layer}.parameters())",
    "listed": "{{*{model}.{layer}.parameters()}}",
    "one": "{{{model}.{layer}.weight}}",
}
CLIPS = (
    "torch.nn.utils.clip_grad_norm_({model}.parameters(), 1.0)",
    "total = torch.nn.utils.clip_grad_norm_({model}.parameters(), max_norm=1.0, foreach=False)",
)
OPTIMIZERS = {"Adam", "AdamW", "SGD"}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    if "FullyShardedDataParallel" in "".join(program.files.values()):
        return  # which torch's clipping does not fit anyway
    everything = modules(program)
    for module in everything:
        for root in roots(program, everything, module):
            owned = sorted(_layers(program, everything, root))
            for kind in sorted(IGNORED) if owned else ():
                layer = random.choice(owned)
                given = IGNORED[kind].format(model=root.model, layer=layer)
                call = sharding(program, module)[0][0]
                end = module.span(call)[1] - 1
                edit = (module, (end, end, f", ignored_params={given}"))
                alone = (module, (end, end, f", ignored_params={MARK}{given}"))
                yield mutant(program, UNREDUCED, kind, _files(everything, [alone]))
                reduced = list(_reduced(program, everything, layer))
                if not reduced:
                    continue
                files = _files(everything, [edit, *reduced])
                yield mutant(program, "", f"{kind} reduced", files)
                for way in (_clipped, _optimized):
                    edits = list(way(program, everything, random))
                    files = _files(everything, [edit, *reduced, *edits])
                    if edits:
                        yield mutant(program, RULE, f"{kind} {way.__name__.strip('_')}", files)


def _layers(program: Program, everything: list[Module], root: Root) -> Iterator[str]:
    """Layers of the class that holds the blocks, which the root alone shards."""
    _, children = sharding(program, root.module)
    apart = " ".join(root.module.source(child) for child in children)
    for module in everything:
        for cls in ast.walk(module.tree):
            if isinstance(cls, ast.ClassDef) and _holds(module.source(cls), root.container):
                for node in ast.walk(cls):
                    layer = _layer(node)
                    if layer and f".{layer}" not in apart:
                        yield layer


def _holds(text: str, container: str) -> bool:
    return f".{container} =" in text or f'"{container}":' in text


def _layer(node: ast.AST) -> str:
    """The attribute that is assigned a linear layer or an embedding, "" for anything else."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
        target = node.targets[0]
        if isinstance(target, ast.Attribute) and name_of(node.value) in ("Linear", "Embedding"):
            return target.attr
    return ""


def _reduced(
    program: Program, everything: list[Module], layer: str
) -> Iterator[tuple[Module, Edit]]:
    """The reduction of the layer's gradients before each step."""
    found = {module.path: module for module in everything}
    for training in trainings(program):
        if training.model:
            module = found[training.module.path]
            start, indent = module.rows(training.step)[0], module.indent(training.step)
            text = (
                f"{indent}for ignored in {training.model}.{layer}.parameters():\n"
                f"{indent}    torch.distributed.all_reduce(ignored.grad)\n"
            )
            yield module, (start, start, text)


def _clipped(
    program: Program, everything: list[Module], random: Random
) -> Iterator[tuple[Module, Edit]]:
    """The clipping of all parameters before each step."""
    found = {module.path: module for module in everything}
    for training in trainings(program):
        if training.model:
            module = found[training.module.path]
            start = training.module.rows(training.step)[0]
            text = random.choice(CLIPS).format(model=training.model)
            yield module, (start, start, f"{module.indent(training.step)}{MARK}{text}\n")


def _optimized(
    program: Program, everything: list[Module], random: Random
) -> Iterator[tuple[Module, Edit]]:
    """An optimizer of all parameters that takes them at once."""
    del program
    for module in everything:
        for call in module.calls():
            given = call.args[0] if call.args else None
            whole = isinstance(given, ast.Call) and name_of(given) == "parameters"
            if name_of(call) in OPTIMIZERS and whole and not _says_how(call):
                start, end = module.span(call)
                option = random.choice(["foreach", "fused"])
                yield module, (start, start, MARK)
                yield module, (end - 1, end - 1, f", {option}=True")


def _says_how(call: ast.Call) -> bool:
    return any(each.arg in ("foreach", "fused", None) for each in call.keywords)


def _files(everything: list[Module], edits: list[tuple[Module, Edit]]) -> dict[str, str]:
    """The files with their own clipping replaced by one that takes no norm."""
    own: dict[str, list[Edit]] = {each.path: list(old_clips(each)) for each in everything}
    for module, edit in edits:
        own[module.path].append(edit)
    return {
        m.path: m.edited(own[m.path], imports="import torch\nimport torch.distributed")
        for m in everything
        if own[m.path]
    }
