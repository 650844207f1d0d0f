"""Where the programs train: the places at which state can be loaded before, and saved after."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from random import Random

from benchmarks.detection.module import Function, Module, modules, name_of
from benchmarks.detection.program import MARK, Mutant, Program, mutant


@dataclass(frozen=True, slots=True)
class Training:
    """A step of an optimizer, with what the function around it calls things.

    Attributes:
        model: the root that FSDP2 shards, "" where the function does not name it.
    """

    module: Module
    step: ast.stmt
    start: ast.stmt
    model: str
    optimizer: str

    def before(self, code: str, imports: str, helper: str = "") -> dict[str, str]:
        """The file with ``code`` above the loops that hold the step."""
        at = self.module.rows(self.start)[0]
        return self._with(at, self.start, code, imports, helper)

    def after(self, code: str, imports: str, helper: str = "") -> dict[str, str]:
        """The file with ``code`` behind the step."""
        at = self.module.rows(self.step)[1]
        return self._with(at, self.step, code, imports, helper)

    def around(self, above: str, behind: str, imports: str) -> dict[str, str]:
        """The file with code above the loops that hold the step, and more behind the step."""
        places = [
            (self.module.rows(self.start)[0], self.start, above),
            (self.module.rows(self.step)[1], self.step, behind),
        ]
        edits = [(at, at, self._lines(like, code)) for at, like, code in places]
        return {self.module.path: self.module.edited(edits, imports)}

    def _with(
        self, at: int, like: ast.stmt, code: str, imports: str, helper: str
    ) -> dict[str, str]:
        edits = [(at, at, self._lines(like, code))]
        return {self.module.path: self.module.edited(edits, imports, helper)}

    def _lines(self, like: ast.stmt, code: str) -> str:
        """``code`` as lines, indented as the statement ``like``."""
        indent = self.module.indent(like)
        lines = [indent + line + "\n" if line else "\n" for line in code.rstrip("\n").split("\n")]
        return "".join(lines)


def trainings(program: Program) -> Iterator[Training]:
    """Every step of an optimizer in ``program``."""
    for module in modules(program):
        for call in module.calls():
            if name_of(call) != "step" or "optim" not in ast.unparse(call.func):
                continue
            assert isinstance(call.func, ast.Attribute)
            optimizer = module.source(call.func.value)
            step = module.statement(call)
            start = _outermost_loop(module, step)
            yield Training(module, step, start, _root(program, module, call), optimizer)


def put_after(
    program: Program,
    random: Random,
    rule: str,
    imports: str,
    wrong: Mapping[str, str],
    legal: Mapping[str, str],
) -> Iterator[Mutant]:
    """Put three of the wrong pieces of code, and all legal ones, behind each step of a model.

    The code has ``{mark}`` where it is wrong, and ``{model}``.
    """
    for training in trainings(program):
        if not training.model:
            continue
        chosen = [(rule, kind, wrong[kind]) for kind in random.sample(sorted(wrong), 3)]
        for found, kind, code in (*chosen, *(("", kind, code) for kind, code in legal.items())):
            text = code.format(mark=MARK, model=training.model)
            yield mutant(program, found, kind, training.after(text, imports))


def _outermost_loop(module: Module, statement: ast.stmt) -> ast.stmt:
    found: ast.stmt = statement
    node: ast.AST = statement
    while node in module.parents and not isinstance(node, Function):
        if isinstance(node, (ast.For, ast.While)):
            found = node
        node = module.parents[node]
    return found


def _root(program: Program, module: Module, node: ast.AST) -> str:
    """The root that the function around ``node`` names itself."""
    if not program.units:
        return ""
    scope = node
    while scope in module.parents and not isinstance(scope, Function):
        scope = module.parents[scope]
    text = ast.unparse(scope).replace("'", '"')
    named = re.search(rf"(?<![\w.]){re.escape(program.units[0])}(?![\w(])", text)
    return program.units[0] if named else ""
