"""error-caught-on-one-rank: an error in the step is caught, and the rank goes on."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from random import Random

from benchmarks.detection.module import Edit, Function, Module, indented
from benchmarks.detection.mutators.training_loops import Training, trainings
from benchmarks.detection.program import MARK, Mutant, Program, mutant

RULE = "error-caught-on-one-rank"
IMPORTS = "import sys\n\nimport torch\nimport torch.distributed"
HELPER = """
def on_any_rank(flag):
    flag = torch.as_tensor(float(flag))
    torch.distributed.all_reduce(flag, op=torch.distributed.ReduceOp.MAX)
    return flag.item() > 0
"""
WRONG = {
    "out of memory": (
        "except §torch.cuda.OutOfMemoryError:\n    torch.cuda.empty_cache()\n    continue"
    ),
    "any": "except §Exception as error:\n    print('skipped', error)",
    "by the message": (
        "except §RuntimeError as error:\n    if 'out of memory' not in str(error):\n"
        "        raise\n    print('skipped')"
    ),
    "one of two": (
        "except KeyboardInterrupt:\n    raise\n"
        "except §(ValueError, torch.OutOfMemoryError):\n    pass"
    ),
}
LEGAL = {
    "raised again": "except RuntimeError:\n    print('failed')\n    raise",
    "exit": "except Exception as error:\n    print(error)\n    sys.exit(1)",
    "of all ranks": "except KeyboardInterrupt:\n    print('stopped')\n    break",
    "agreed": (
        "except RuntimeError as error:\n    failed = error\nelse:\n    failed = None\n"
        "if on_any_rank(failed is not None):\n    continue"
    ),
}


def mutate(program: Program, random: Random) -> Iterator[Mutant]:
    for training in trainings(program):
        loop = _loop(training.module, training.step)
        if loop is None or "backward" not in ast.unparse(loop):
            continue
        for kind in random.sample(sorted(WRONG), 2):
            yield mutant(program, RULE, kind, _caught(training, loop, WRONG[kind]))
        for kind in random.sample(sorted(LEGAL), 2):
            yield mutant(program, "", kind, _caught(training, loop, LEGAL[kind]))


def _loop(module: Module, statement: ast.stmt) -> ast.For | ast.While | None:
    node: ast.AST = statement
    while node in module.parents and not isinstance(node, Function):
        node = module.parents[node]
        if isinstance(node, (ast.For, ast.While)):
            return node
    return None


def _caught(training: Training, loop: ast.For | ast.While, handlers: str) -> dict[str, str]:
    """The file with the body of a loop in a ``try``."""
    module = training.module
    first, end = module.rows(loop.body[0], loop.body[-1])
    indent = module.indent(loop.body[0])
    body = indented(module.text[first:end], "    ")
    text = f"{indent}try:\n{body}{indented(handlers, indent)}\n"
    edit: Edit = (first, end, text.replace("§", MARK))
    helper = HELPER if "on_any_rank" in handlers else ""
    return {module.path: module.edited([edit], IMPORTS, helper)}
