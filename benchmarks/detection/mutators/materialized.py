"""materialized-without-init: `to_empty` throws the weights away, and nothing sets them again."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from random import Random

from benchmarks.detection.module import Edit, Module, indented, modules, name_of
from benchmarks.detection.mutators.only_root import WRAPPERS, is_sharding, sharding
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "materialized-without-init"


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    for module in modules(program):
        if "to_empty" in module.text or "dcp.load" in module.text:
            continue  # its weights come from a checkpoint
        for root in models(program, module):
            for variant in (_plain, random.choice([_helper, _each_module, _rebound])):
                edits, helper = variant(module, root)
                kind = f"{variant.__name__.strip('_')} at {module.source(root.args[0])}"
                text = module.edited(edits, helper=helper)
                yield mutant(program, RULE, kind, {module.path: text})

    yield from _buffers(program, random)


def _buffers(program: Program, random: Random) -> Iterator[Mutant]:
    """Weights that are thrown away and loaded, in a model with a buffer that no load sets."""
    texts = "".join(program.files.values())
    found = [(m, root) for m in modules(program) for root in sharding(program, m)[0]]
    classes = [(m, cls) for m in modules(program) for cls in _networks(m)]
    if len(found) != 1 or not classes or "to_empty" in texts or "fully_shard" not in texts:
        return
    (module, root), (owner, network) = found[0], random.choice(classes)
    if isinstance(module.parents[module.statement(root)], ast.For):
        return  # its parts are sharded before the loop
    init, forward = (_method(network, name) for name in ("__init__", "forward"))
    assert init is not None and forward is not None
    model = _model(module, root)
    emptied = f'{model}.to_empty(device="cpu")\n'
    load = f'{model}.load_state_dict(torch.load("weights.pt"))\n'
    again = f"for part in {model}.modules():\n    part.gain = torch.ones(())\n"
    for kind, rule, persistent, after in (
        ("buffer left as found", RULE, False, ""),
        ("persistent buffer", "", True, ""),
        ("buffer set again", "", False, again),
    ):
        lines = f'{model}.to("meta")\n{MARK * bool(rule)}{emptied}{load}{after}'
        buffer = f'self.register_buffer("gain", torch.ones(()), persistent={persistent})\n'
        edits: dict[str, list[Edit]] = {module.path: [_above(module, root, lines)]}
        edits.setdefault(owner.path, []).extend(
            [
                _into(owner, init.body[-1], buffer),
                _into(owner, forward.body[0], "gain = self.gain\n", before=True),
            ]
        )
        files = {
            each.path: each.edited(edits[each.path], imports="import torch")
            for each in (module, owner)
        }
        yield mutant(program, rule, kind, files)


def _above(module: Module, root: ast.Call, lines: str) -> Edit:
    """``lines`` above what shards in the block of ``root``."""
    statement = module.statement(root)
    shards = [
        each
        for each in module.block(statement).statements
        if any(is_sharding(module, c) for c in ast.walk(each) if isinstance(c, ast.Call))
    ]
    first = min([statement, *shards], key=lambda each: each.lineno)
    start = module.rows(first)[0]
    return start, start, indented(lines, module.indent(first))


def _into(module: Module, beside: ast.stmt, line: str, before: bool = False) -> Edit:
    at = module.rows(beside)[0 if before else 1]
    return at, at, indented(line, module.indent(beside))


def _networks(module: Module) -> Iterator[ast.ClassDef]:
    """Classes of modules that hold a list of others, as whole models do."""
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.ClassDef) or not _method(node, "__init__"):
            continue
        text = ast.unparse(node)
        if _method(node, "forward") and ("ModuleList(" in text or "Sequential(" in text):
            yield node


def _method(cls: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    found = (each for each in cls.body if isinstance(each, ast.FunctionDef))
    return next((each for each in found if each.name == name), None)


def models(program: Program, module: Module) -> list[ast.Call]:
    """The calls that shard a whole model, given by name."""
    roots, _ = sharding(program, module)
    wrappers = [call for call in module.calls() if name_of(call) in WRAPPERS]
    return [call for call in dict.fromkeys([*roots, *wrappers]) if _names_model(call)]


def _names_model(call: ast.Call) -> bool:
    return bool(call.args) and isinstance(call.args[0], (ast.Name, ast.Attribute, ast.Subscript))


def _model(module: Module, root: ast.Call) -> str:
    return module.source(root.args[0])


def _put(module: Module, root: ast.Call, lines: str) -> list[Edit]:
    """``lines`` below the sharding; above it where its value is used, and for FSDP1."""
    statement = module.statement(root)
    start, end = module.rows(statement)
    bare = isinstance(statement, ast.Expr) and statement.value is root
    at = end if bare else start
    return [(at, at, indented(lines, module.indent(statement)))]


Variant = Callable[[Module, ast.Call], tuple[list[Edit], str]]


def _plain(module: Module, root: ast.Call) -> tuple[list[Edit], str]:
    line = f'{MARK}{_model(module, root)}.to_empty(device="cpu")\n'
    return _put(module, root, line), ""


def _rebound(module: Module, root: ast.Call) -> tuple[list[Edit], str]:
    model = _model(module, root)
    return _put(module, root, f'{model} = {MARK}{model}.to_empty(device="cpu")\n'), ""


def _each_module(module: Module, root: ast.Call) -> tuple[list[Edit], str]:
    model = _model(module, root)
    body = f'    {MARK}submodule.to_empty(device="cpu", recurse=False)\n'
    return _put(module, root, f"for submodule in {model}.modules():\n{body}"), ""


def _helper(module: Module, root: ast.Call) -> tuple[list[Edit], str]:
    helper = f"""
    def materialize(network, target="cpu"):
        {MARK}network.to_empty(device=target)
        network.train()
    """
    return _put(module, root, f"materialize({_model(module, root)})\n"), helper
