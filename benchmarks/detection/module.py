"""One file of a program: its syntax tree, and edits to its text."""

from __future__ import annotations

import ast
import itertools
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from benchmarks.detection.program import Program

Function = ast.FunctionDef | ast.AsyncFunctionDef
Edit = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class Block:
    """A list of statements and the place of one of them in it."""

    statements: list[ast.stmt]
    index: int


class Module:
    """Text and tree of the file at ``path``; offsets are characters (the programs are ASCII)."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        self.tree = ast.parse(text)
        self.lines = [0]
        for line in text.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line))
        self.parents = {
            child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)
        }

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        start = self.lines[node.lineno - 1] + node.col_offset
        return start, self.lines[node.end_lineno - 1] + node.end_col_offset

    def source(self, node: ast.expr | ast.stmt) -> str:
        start, end = self.span(node)
        return self.text[start:end]

    def rows(self, first: ast.stmt, last: ast.stmt | None = None) -> tuple[int, int]:
        """Whole lines from ``first``, and its decorators, to the end of ``last``."""
        end = (last or first).end_lineno
        assert end is not None
        decorators = getattr(first, "decorator_list", [])
        start = min([first.lineno, *(item.lineno for item in decorators)])
        return self.lines[start - 1], self.lines[end]

    def dedented(self, first: ast.stmt, last: ast.stmt | None = None) -> str:
        start, end = self.rows(first, last)
        return textwrap.dedent(self.text[start:end])

    def indent(self, statement: ast.stmt) -> str:
        return " " * statement.col_offset

    def statement(self, node: ast.AST) -> ast.stmt:
        while not isinstance(node, ast.stmt):
            node = self.parents[node]
        return node

    def block(self, statement: ast.stmt) -> Block:
        parent = self.parents[statement]
        for name in ("body", "orelse", "finalbody"):
            statements = getattr(parent, name, None)
            if isinstance(statements, list) and statement in statements:
                return Block(statements, statements.index(statement))
        raise ValueError(f"{self.path}:{statement.lineno}: not in a block")

    def blocks(self) -> Iterator[list[ast.stmt]]:
        for node in ast.walk(self.tree):
            for name in ("body", "orelse", "finalbody"):
                statements = getattr(node, name, None)
                if isinstance(statements, list) and statements:
                    yield statements

    def functions(self, node: ast.AST) -> list[str]:
        """Names of the functions around ``node``, innermost first."""
        names = []
        while node in self.parents:
            node = self.parents[node]
            if isinstance(node, Function):
                names.append(node.name)
        return names

    def calls(self) -> Iterator[ast.Call]:
        return (node for node in ast.walk(self.tree) if isinstance(node, ast.Call))

    def edited(self, edits: Iterable[Edit], imports: str = "", helper: str = "") -> str:
        """The text after ``edits``, with ``imports`` and a module-level ``helper`` added."""
        return splice(self.text, [*edits, *self._additions(imports, helper)])

    def _additions(self, imports: str, helper: str) -> Iterator[Edit]:
        preamble = self._preamble()
        if imports and imports not in self.text:
            yield preamble, preamble, imports + "\n"
        if helper:
            place = self._first_definition(preamble)
            yield place, place, textwrap.dedent(helper).strip() + "\n\n\n"

    def _preamble(self) -> int:
        """Where an import may stand: below the docstring and `from __future__`."""
        for statement in self.tree.body:
            docstring = isinstance(statement, ast.Expr) and statement is self.tree.body[0]
            future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
            if not (docstring or future):
                return self.rows(statement)[0]
        return len(self.text)

    def _first_definition(self, after: int) -> int:
        """Where a helper may stand: before the first definition, else before the first use."""
        for statement in self.tree.body:
            if isinstance(statement, (Function, ast.ClassDef)):
                return self.rows(statement)[0]
        for statement in self.tree.body:
            imported = isinstance(statement, (ast.Import, ast.ImportFrom))
            if self.rows(statement)[0] >= after and not imported:
                return self.rows(statement)[0]
        return len(self.text)


def splice(text: str, edits: Iterable[Edit]) -> str:
    """``text`` with each [start, end) replaced; insertions at one place keep their order."""
    ordered = sorted(edits, key=lambda edit: (edit[0], edit[1]))
    for before, after in itertools.pairwise(ordered):
        assert before[1] <= after[0], f"edits overlap: {before} {after}"
    for start, end, new in reversed(ordered):
        text = text[:start] + new + text[end:]
    return text


def modules(program: Program) -> list[Module]:
    return [Module(path, text) for path, text in program.files.items()]


def name_of(call: ast.Call) -> str:
    """The last name of what is called: `b` of `a.b(...)`, `f` of `f(...)`; "" for others."""
    func = call.func
    if isinstance(func, ast.Attribute):
        return func.attr
    return func.id if isinstance(func, ast.Name) else ""


def called_names(node: ast.AST) -> set[str]:
    return {name_of(call) for call in ast.walk(node) if isinstance(call, ast.Call)}


def reaching(program_modules: Iterable[Module], direct: set[str]) -> set[str]:
    """``direct`` and every function of the program that leads to a call of one of them."""
    bodies = {
        node.name: called_names(node)
        for module in program_modules
        for node in ast.walk(module.tree)
        if isinstance(node, Function)
    }
    found = set(direct)
    while grown := {name for name, called in bodies.items() if called & found} - found:
        found |= grown
    return found


def indented(code: str, by: str) -> str:
    return textwrap.indent(code, by)


def fresh(name: str, text: str) -> str:
    """``name``, or with an underscore where ``text`` already has it."""
    return f"{name}_" if re.search(rf"\b{name}\b", text) else name
