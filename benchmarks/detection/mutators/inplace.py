"""inplace-on-sharded-output: blocks return views, and the model's forward changes them in place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import Edit, Module, modules
from benchmarks.detection.mutators.block_calls import block_calls
from benchmarks.detection.mutators.class_checks import Root, roots
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
    found = [root for module in everything for root in roots(program, everything, module)]
    if len({(root.block, root.container) for root in found}) != 1:
        return
    for kind in random.sample(sorted(WRONG), 4):
        files = _changed(everything, found[0], WRONG[kind].replace("§", MARK), view=True)
        if files:
            yield mutant(program, RULE, kind, files)
    for kind in LEGAL:
        files = _changed(everything, found[0], LEGAL[kind], view=True)
        if files:
            yield mutant(program, "", kind, files)
    files = _changed(everything, found[0], "{out} += 1.0", view=False)
    if files:
        yield mutant(program, "", "no view", files)


def _changed(everything: list[Module], root: Root, lines: str, *, view: bool) -> dict[str, str]:
    """The files changed; none if the places are not found, or not one each."""
    edits: dict[str, list[Edit]] = {}
    for module in everything:
        for function in _forwards(module) if view else ():
            cls = module.parents[function]
            if isinstance(cls, ast.ClassDef) and cls.name == root.block:
                edits.setdefault(module.path, []).extend(_views(module, function))
    for found in block_calls(everything, root):
        module, statement = found.module, found.statement
        own = edits.setdefault(module.path, [])
        if not isinstance(statement, ast.Assign) or isinstance(statement.value, ast.IfExp):
            continue
        (start, end), indent = module.rows(statement), module.indent(statement)
        if statement.value is found.call:
            text = lines.format(out=ast.unparse(statement.targets[0])).split("\n")
            own.append((end, end, "".join(f"{indent}{line}\n" for line in text)))
        else:  # a part of a sum, which gets a name
            text = [
                f"update = {module.source(found.call)}",
                *lines.format(out="update").split("\n"),
            ]
            rest = module.source(statement).replace(module.source(found.call), "update")
            own.append((start, end, "".join(f"{indent}{line}\n" for line in (*text, rest))))
    if len([edit for each in edits.values() for edit in each]) != 1 + view:
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
