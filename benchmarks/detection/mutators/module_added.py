"""module-added-after-sharding: the model gets another layer once it is sharded."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import Module, indented, modules
from benchmarks.detection.mutators.only_root import sharding
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "module-added-after-sharding"
ADDITIONS = {
    "layer": f"{MARK}{{model}}.adapter = torch.nn.Linear(4, 4)\n",
    "setattr": f'{MARK}setattr({{model}}, "adapter", torch.nn.Linear(4, 4))\n',
    "parameter": f"{MARK}{{model}}.token = torch.nn.Parameter(torch.zeros(4))\n",
    "": "{model}.adapter = torch.nn.Linear(4, 4).requires_grad_(False)\n",
}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    yield from _additions(program, random)
    yield from _ties(program)


def _additions(program: Program, random: Random) -> Iterator[Mutant]:
    for module in modules(program):
        roots, children = sharding(program, module)
        if "FullyShardedDataParallel" in module.text or not children:
            continue
        for root in roots:
            statement = module.statement(root)
            if not isinstance(module.parents[root], ast.Expr) or len(roots) > 1:
                continue
            model, end = module.source(root.args[0]), module.rows(statement)[1]
            for kind in ("layer", random.choice(["setattr", "parameter"]), ""):
                if not kind and "requires_grad_(True)" in module.text:
                    continue  # it would not stay frozen
                text = module.indent(statement) + ADDITIONS[kind].format(model=model)
                made = module.edited([(end, end, text)], imports="import torch")
                rule = RULE if kind else ""
                yield mutant(program, rule, kind or "frozen layer", {module.path: made})


def _ties(program: Program) -> Iterator[Mutant]:
    """Two layers that share a weight from a forward on, which is right if they did before it."""
    found = [(module, *_root(program, module)) for module in modules(program)]
    roots = [(module, root, first) for module, root, first in found if root is not None]
    texts = "".join(program.files.values())
    runs = [(m, s) for m in modules(program) for s in _forwards(m, program.units[:1])]
    strange = ("FullyShardedDataParallel", "meta", "transformers")
    if len(roots) != 1 or not runs or any(word in texts for word in strange):
        return
    module, root, first = roots[0]
    model, (running, run) = module.source(root.args[0]), runs[0]
    tie = "{0}.other.weight = {0}.one.weight\n"
    layers = "".join(f"{model}.{name} = torch.nn.Linear(4, 4)\n" for name in ("one", "other"))
    start, end = module.rows(first)[0], module.rows(module.statement(root))[1]
    made = (start, start, indented(layers, module.indent(first)))
    early = (end, end, indented(tie.format(model), module.indent(module.statement(root))))
    after = running.rows(run)[1]
    late = indented(tie.format(program.units[0]), running.indent(run))
    for rule, edits in ((RULE, [made]), ("", [made, early])):
        marked = [(after, after, late.replace(late.lstrip(), MARK * bool(rule) + late.lstrip()))]
        changes = {module.path: edits}
        changes[running.path] = [*changes.get(running.path, []), *marked]
        files = {
            each.path: each.edited(changes[each.path], imports="import torch")
            for each in (module, running)
        }
        yield mutant(program, rule, "tied after a forward" if rule else "tied before", files)


def _root(program: Program, module: Module) -> tuple[ast.Call | None, ast.stmt]:
    """The call that shards the model, and the first statement beside it that shards."""
    roots, children = sharding(program, module)
    if len(roots) != 1 or not isinstance(module.parents[roots[0]], ast.Expr):
        return None, module.tree.body[0]
    statement = module.statement(roots[0])
    beside = [each for each in children if each in module.block(statement).statements]
    return roots[0], min([statement, *beside], key=lambda each: each.lineno)


def _forwards(module: Module, units: tuple[str, ...]) -> Iterator[ast.stmt]:
    for call in module.calls():
        statement = module.statement(call)
        if module.source(call.func) in units and isinstance(statement, (ast.Assign, ast.Expr)):
            yield statement
