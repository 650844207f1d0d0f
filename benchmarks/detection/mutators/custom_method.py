"""custom-method-bypasses-hooks: the model is called by a method that FSDP does not know of."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Iterator
from random import Random

from benchmarks.detection.module import Edit, Function, Module, fresh, indented, modules
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "custom-method-bypasses-hooks"
METHOD = "compute_outputs"
Body = Callable[[Module, Function], str]


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    every = modules(program)
    if not program.units or "FullyShardedDataParallel" in "".join(program.files.values()):
        return
    if not any(next(_forwards(module), None) for module in every):
        return  # the model's class is a library's
    root = ast.unparse(ast.parse(program.units[0], mode="eval").body)
    for module in every:
        for call in module.calls():
            plain = set(module.functions(call)) & program.plain
            if not plain and ast.unparse(call.func) == root:
                yield from _at_call(program, every, module, call, random)


def _at_call(
    program: Program, every: list[Module], module: Module, call: ast.Call, random: Random
) -> Iterator[Mutant]:
    unit = module.source(call.func)
    start, end = module.span(call.func)
    where = f"{unit}(...) in {next(iter(module.functions(call)), 'the script')}"
    direct = (start, end, f"{MARK}{unit}.{METHOD}")
    yield _made(program, every, module, f"method: {where}", [direct], _copy)
    statement = module.statement(call)
    row = module.rows(statement)[0]
    name = fresh("network", module.text)
    alias = [
        (row, row, f"{module.indent(statement)}{name} = {unit}\n"),
        (start, end, f"{MARK}{name}.{METHOD}"),
    ]
    kind, body = random.choice([("method of a method", _nested), ("method of a weight", _weight)])
    yield _made(program, every, module, f"{kind}: {where}", [direct], body)
    yield _made(program, every, module, f"alias: {where}", alias, _copy)
    legal = [(start, end, f"{unit}.{METHOD}")]
    yield _made(program, every, module, f"method that calls the model: {where}", legal, _caller)


def _made(
    program: Program,
    every: list[Module],
    module: Module,
    kind: str,
    edits: list[Edit],
    body: Body,
) -> Mutant:
    """The mutant with ``edits`` in ``module``, and the method in each model of the program."""
    changed: dict[str, list[Edit]] = {module.path: edits}
    for each in every:
        for forward in _forwards(each):
            end = each.rows(forward)[1]
            text = "\n" + indented(body(each, forward), each.indent(forward))
            changed.setdefault(each.path, []).append((end, end, text))
    files = {each.path: each.edited(changed[each.path]) for each in every if each.path in changed}
    return mutant(program, "" if body is _caller else RULE, kind, files)


def _forwards(module: Module) -> Iterator[Function]:
    """The forwards of classes that hold a list of blocks."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ClassDef) and _holds_blocks(node):
            for each in node.body:
                if isinstance(each, Function) and each.name == "forward":
                    yield each


def _holds_blocks(node: ast.ClassDef) -> bool:
    text = ast.unparse(node)
    return any(each in text for each in ("nn.ModuleList(", "nn.ModuleDict(", "nn.Sequential(*"))


def _copy(module: Module, forward: Function) -> str:
    return module.dedented(forward).replace("def forward(", f"def {METHOD}(", 1)


def _nested(module: Module, forward: Function) -> str:
    inner = module.dedented(forward).replace("def forward(", "def _run_layers(", 1)
    return f"def {METHOD}(self, *inputs):\n    return self._run_layers(*inputs)\n\n{inner}"


def _weight(_: Module, forward: Function) -> str:
    """A penalty on a weight of the root, besides a forward as it should be."""
    layers = [
        node.func.attr
        for node in ast.walk(forward)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and ast.unparse(node.func.value) == "self"
    ]
    text = f"""
    def {METHOD}(self, *inputs):
        similarity = torch.eye(1) @ self.{layers[0]}.weight
        return self(*inputs) + similarity.mean()
    """
    return textwrap.dedent(text).lstrip()


def _caller(_: Module, __: Function) -> str:
    return f"def {METHOD}(self, *inputs):\n    return self(*inputs)\n"
