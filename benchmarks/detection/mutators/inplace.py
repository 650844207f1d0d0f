"""inplace-on-sharded-output: blocks return views, and the model's forward changes them in place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import Edit, Module, modules
from benchmarks.detection.mutators.class_checks import roots
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "inplace-on-sharded-output"
WRONG = {
    "augmented": "§{out} += 1.0",
    "scaled": "§{out} *= 0.5 + 0.5",
    "method": "§{out}.mul_(2.0)",
    "part": "§{out}[0] = 0.0",
    "behind another statement": "print({out}.shape)\n§{out} -= 1.0",
}
LEGAL = {"new": "{out} = {out} + 1.0", "copied": "{out} = {out}.clone()\n{out} += 1.0"}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    everything = modules(program)
    blocks = {root.block for m in everything for root in roots(program, everything, m)}
    loops = {root.container for m in everything for root in roots(program, everything, m)}
    if len(blocks) != 1 or len(loops) != 1:
        return
    (block,), (container,) = blocks, loops
    for kind in random.sample(sorted(WRONG), 4):
        files = _changed(everything, block, container, WRONG[kind].replace("§", MARK), view=True)
        if files:
            yield mutant(program, RULE, kind, files)
    for kind in LEGAL:
        files = _changed(everything, block, container, LEGAL[kind], view=True)
        if files:
            yield mutant(program, "", kind, files)
    files = _changed(everything, block, container, "{out} += 1.0", view=False)
    if files:
        yield mutant(program, "", "no view", files)


def _changed(
    everything: list[Module], block: str, container: str, lines: str, *, view: bool
) -> dict[str, str]:
    """The files changed; none if the places are not found, or not one each."""
    edits: dict[str, list[Edit]] = {}
    for module in everything:
        for function in _forwards(module):
            cls = module.parents[function]
            if isinstance(cls, ast.ClassDef) and cls.name == block:
                edits.setdefault(module.path, []).extend(_views(module, function) if view else ())
            else:
                found = list(_after_calls(module, function, container, lines))
                edits.setdefault(module.path, []).extend(found)
    changes = [edit for each in edits.values() for edit in each]
    if len(changes) != 1 + view:
        return {}
    return {m.path: m.edited(edits[m.path]) for m in everything if edits.get(m.path)}


def _forwards(module: Module) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef) and node.name == "forward":
            yield node


def _views(module: Module, function: ast.FunctionDef) -> Iterator[Edit]:
    """What the function returns, as a view."""
    for node in ast.walk(function):
        if isinstance(node, ast.Return) and node.value is not None:
            text = f"({module.source(node.value)}).unsqueeze(0).squeeze(0)"
            yield (*module.span(node.value), text)


def _after_calls(
    module: Module, function: ast.FunctionDef, container: str, lines: str
) -> Iterator[Edit]:
    """``lines`` behind the call of a block in a loop through ``self.<container>``."""
    for loop in ast.walk(function):
        if not isinstance(loop, ast.For) or f".{container}" not in module.source(loop.iter):
            continue
        for node in loop.body:
            single = isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
            if single and isinstance(node.targets[0], ast.Name):
                _, end = module.rows(node)
                indent = module.indent(node)
                text = lines.format(out=node.targets[0].id).split("\n")
                yield (end, end, "".join(f"{indent}{line}\n" for line in text))
