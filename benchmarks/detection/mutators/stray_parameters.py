"""parameter-used-outside-its-unit: a layer's weight is used where no hook has gathered it."""

import ast
from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import Edit, Function, Module, modules
from benchmarks.detection.mutators.only_root import sharding
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "parameter-used-outside-its-unit"
_HELPER = f"""
def project_with(hidden, weight):
    return {MARK}(hidden @ weight.t())
"""


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    every = modules(program)
    if not program.units or "FullyShardedDataParallel" in "".join(program.files.values()):
        return
    layers = [(m, cls, call) for m in every for cls, call in _layer_calls(m)]
    if len({cls for _, cls, _ in layers}) != 1:
        return  # which of the models the layer is in is not plain to see
    module, _, call = random.choice(layers)
    given = module.source(call.args[0])
    layer = module.source(call.func)
    name = layer.removeprefix("self.")
    start, end = module.span(call)
    linear = f"torch.nn.functional.linear({given}, {layer}.weight, {layer}.bias)"
    product = f"(({given}) @ {layer}.weight.T)"
    texts = {
        "linear": f"{MARK}{linear}",
        "product": f"{MARK}{product}",
        "einsum": f'{MARK}torch.einsum("...i,oi->...o", {given}, {layer}.weight)',
    }
    for kind, text in texts.items():
        yield from _made(program, every, module, kind, name, [(start, end, text)])
    helped = [(start, end, f"project_with({given}, {layer}.weight)")]
    yield from _made(program, every, module, "helper", name, helped, _HELPER)
    legal = module.edited([(start, end, linear)], imports="import torch\n")
    yield mutant(program, "", f"linear in the root: {name}", {module.path: legal})
    yield from _before_training(program, every, name)


def _layer_calls(module: Module) -> Iterator[tuple[str, ast.Call]]:
    """The calls of linear layers in the forwards of models that hold blocks."""
    for cls in ast.walk(module.tree):
        if not isinstance(cls, ast.ClassDef):
            continue
        if not any(each in ast.unparse(cls) for each in ("nn.ModuleList(", "nn.ModuleDict(")):
            continue
        linear = {
            ast.unparse(node.targets[0])
            for node in ast.walk(cls)
            if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("nn.Linear(")
        }
        for forward in cls.body:
            if isinstance(forward, Function) and forward.name == "forward":
                for node in ast.walk(forward):
                    if isinstance(node, ast.Call) and ast.unparse(node.func) in linear:
                        yield cls.name, node


def _made(
    program: Program,
    every: list[Module],
    module: Module,
    kind: str,
    layer: str,
    edits: list[Edit],
    helper: str = "",
) -> Iterator[Mutant]:
    """The mutant in which the layer is a unit of its own, besides ``edits``."""
    changed: dict[str, list[Edit]] = {module.path: list(edits)}
    found = False
    for each in every:
        for root in sharding(program, each)[0]:
            statement = each.statement(root)
            row = each.rows(statement)[0]
            target = each.source(root.args[0])
            kept = [ast.unparse(k) for k in root.keywords if k.arg != "reshard_after_forward"]
            inner = ", ".join([f"{target}.{layer}", *kept])
            line = f"{each.indent(statement)}{ast.unparse(root.func)}({inner})\n"
            changed.setdefault(each.path, []).append((row, row, line))
            found = True
    files = {
        each.path: each.edited(
            changed[each.path],
            imports="import torch\n" if each is module else "",
            helper=helper if each is module else "",
        )
        for each in every
        if each.path in changed
    }
    if found:
        yield mutant(program, RULE, f"{kind}: {layer}", files)


def _before_training(program: Program, every: list[Module], layer: str) -> Iterator[Mutant]:
    """The weight is looked at right behind the sharding call, before any forward."""
    for module in every:
        for root in sharding(program, module)[0]:
            statement = module.statement(root)
            if isinstance(statement, ast.Expr):
                end = module.rows(statement)[1]
                target = module.source(root.args[0])
                product = f"{MARK}(torch.eye(1) @ {target}.{layer}.weight)"
                line = f"{module.indent(statement)}similarity = {product}\n"
                text = module.edited([(end, end, line)], imports="import torch\n")
                yield mutant(program, RULE, f"before training: {layer}", {module.path: text})
