"""One file as fixes see it: its IR with parents, and the lines its statements stand on."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import get_args

from fsdplint.engine import ir
from fsdplint.finding import Edit, Span
from fsdplint.fixes.declined import NoFixError
from fsdplint.source.lexing import NEWLINE, TOKEN

STATEMENTS: tuple[type[ir.Node], ...] = get_args(ir.Stmt)
COMPOUND = (ir.FunctionDef, ir.ClassDef, ir.If, ir.For, ir.While, ir.With, ir.Try, ir.Match)

# Comments that speak of a place in the file and not of the statement under them.
_STAYING_COMMENT = re.compile(r"#!|#.*?coding[:=]|# ?%%|# ?In ?\[|# ?fmt: |# ?(end)?region\b")


@dataclass(frozen=True, slots=True)
class Block:
    """The statements of one suite of ``owner``; equal to itself only, as nodes are."""

    owner: ir.Node
    statements: tuple[ir.Stmt, ...]


@dataclass(frozen=True)
class Code:
    """The text of the file at ``path`` with the module lowered from that very text."""

    path: str
    text: str
    module: ir.Module

    # The tree

    @cached_property
    def _parents(self) -> dict[ir.Node, ir.Node]:
        return {child: node for node in ir.walk(self.module) for child in ir.children(node)}

    def parent(self, node: ir.Node) -> ir.Node:
        return self._parents[node]

    def ancestors(self, node: ir.Node) -> Iterator[ir.Node]:
        """The nodes around ``node``, the nearest first; the module is the last."""
        while node is not self.module:
            node = self.parent(node)
            yield node

    def statement(self, node: ir.Node) -> ir.Stmt:
        """The innermost statement that is or holds ``node``."""
        for candidate in (node, *self.ancestors(node)):
            # The statement of a lambda's body is its value, and stands on no line of its own.
            if isinstance(candidate, STATEMENTS) and not self.in_lambda(candidate):
                return candidate  # type: ignore[return-value]  # STATEMENTS are the types of Stmt
        raise ValueError("the module is in no statement")

    def in_lambda(self, node: ir.Node) -> bool:
        return any(isinstance(ancestor, ir.Lambda) for ancestor in self.ancestors(node))

    @cached_property
    def functions(self) -> tuple[ir.Function, ...]:
        """Every function and method of the file, lambdas left out."""
        nodes = ir.walk(self.module)
        return tuple(node.function for node in nodes if isinstance(node, ir.FunctionDef))

    def is_rebound(self, expression: ir.Expr) -> bool:
        """Whether a name in ``expression`` is a loop's variable or is assigned more than once."""
        names = {node.id for node in ir.walk(expression) if isinstance(node, ir.Name)}
        targets: list[str] = []
        for node in ir.walk(self.function(expression) or self.module):
            if isinstance(node, (ir.For, ir.Clause)):
                targets += 2 * [n.id for n in ir.walk(node.target) if isinstance(n, ir.Name)]
            elif isinstance(node, ir.Assign):
                targets += [target.id for target in node.targets if isinstance(target, ir.Name)]
        return any(targets.count(name) > 1 for name in names)

    def block(self, statement: ir.Stmt) -> Block:
        owner = self.parent(statement)
        return next(block for block in _blocks(owner) if statement in block.statements)

    def function(self, node: ir.Node) -> ir.Function | None:
        """The innermost function or lambda around ``node``."""
        return next((a for a in self.ancestors(node) if isinstance(a, ir.Function)), None)

    def scope(self, node: ir.Node) -> ir.Function | ir.ClassDef | ir.Module:
        """The innermost function, class or module around ``node``."""
        kinds = (ir.Function, ir.ClassDef, ir.Module)
        return next(a for a in self.ancestors(node) if isinstance(a, kinds))

    @cached_property
    def _nodes_by_scope(self) -> dict[ir.Node, list[ir.Node]]:
        nodes: dict[ir.Node, list[ir.Node]] = {self.module: []}
        scopes: dict[ir.Node, ir.Node] = {self.module: self.module}
        for node in ir.walk(self.module):
            scope = scopes[node]
            if node is not self.module:
                nodes[scope].append(node)
            inner = node if isinstance(node, (ir.Function, ir.ClassDef, ir.Module)) else scope
            nodes.setdefault(inner, [])
            scopes.update((child, inner) for child in ir.children(node))
        return nodes

    def nodes_of(self, scope: ir.Function | ir.ClassDef | ir.Module) -> Sequence[ir.Node]:
        """The nodes whose ``scope`` it is: those of nested functions and classes left out."""
        return self._nodes_by_scope[scope]

    @cached_property
    def imports(self) -> tuple[ir.Import | ir.ImportFrom, ...]:
        """Every import statement of the file."""
        nodes = ir.walk(self.module)
        return tuple(node for node in nodes if isinstance(node, (ir.Import, ir.ImportFrom)))

    # Text

    def slice(self, node: ir.Node) -> str:
        return self.text[node.start : node.end]

    def short(self, node: ir.Node) -> str:
        """The first line of ``node``'s text, for a reason shown to the user."""
        first = NEWLINE.split(self.slice(node))[0].strip()
        return first if len(first) <= 50 else first[:47] + "..."

    def edit(self, start: int, end: int, text: str) -> Edit:
        return Edit(Span(self.path, start, end), text)

    @cached_property
    def newline(self) -> str:
        found = NEWLINE.search(self.text)
        return "\n" if found is None else found.group()

    @cached_property
    def unit(self) -> str:
        """One level of indentation, as the file's first indented block has it."""
        for node in ir.walk(self.module):
            for block in () if isinstance(node, ir.Module) else _blocks(node):
                inner, outer = self.indentation(block.statements[0]), self.indentation(node)
                if self.starts_line(block.statements[0]) and inner != outer:
                    return inner.removeprefix(outer)
        return "    "

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(newline.end() for newline in NEWLINE.finditer(self.text))]

    @cached_property
    def _comments_and_strings(self) -> list[tuple[str, int, int]]:
        tokens = TOKEN.finditer(self.text)
        kinds = ("comment", "string")
        return [(t.lastgroup, *t.span()) for t in tokens if t.lastgroup in kinds]

    def comments(self, start: int, end: int) -> bool:
        """Whether a comment begins between the two offsets."""
        return any(k == "comment" and start <= s < end for k, s, _ in self._comments_and_strings)

    def in_string(self, offset: int) -> bool:
        """Whether ``offset`` is inside a string, so that what stands there is its content."""
        return any(k == "string" and s < offset < e for k, s, e in self._comments_and_strings)

    # Lines

    def line_start(self, offset: int) -> int:
        return self._starts[bisect_right(self._starts, offset) - 1]

    def line_end(self, offset: int) -> int:
        """The offset after the line end of the line ``offset`` is on."""
        following = bisect_right(self._starts, offset)
        return self._starts[following] if following < len(self._starts) else len(self.text)

    def line(self, offset: int) -> str:
        """The line ``offset`` is on, without its line end."""
        return self.text[self.line_start(offset) : self.line_end(offset)].rstrip("\r\n")

    def code_lines(self, start: int, end: int) -> Iterator[int]:
        """Where the lines from ``start`` begin that can be indented: not blank, in no string."""
        while start < end:
            if self.line(start).strip() and not self.in_string(start):
                yield start
            start = self.line_end(start)

    def head(self, node: ir.Node) -> int:
        """Where ``node`` begins, its decorators included."""
        decorators: tuple[ir.Expr, ...] = ()
        if isinstance(node, ir.ClassDef):
            decorators = node.decorators
        elif isinstance(node, ir.FunctionDef):
            decorators = node.function.decorators
        if not decorators:
            return node.start
        return self.text.rindex("@", 0, decorators[0].start)

    def indentation(self, node: ir.Node) -> str:
        """The whitespace that begins the line ``node`` begins on."""
        line = self.line(self.head(node))
        return line[: len(line) - len(line.lstrip(" \t\f"))]

    def starts_line(self, node: ir.Node) -> bool:
        head = self.head(node)
        start = self.line_start(head)
        continued = self.text[:start].rstrip("\r\n").endswith("\\")
        return not continued and not self.text[start:head].strip(" \t\f")

    def ends_line(self, node: ir.Node) -> bool:
        rest = self.text[node.end : self.line_end(node.end)].strip()
        return not rest or rest.startswith("#")

    def alone(self, statement: ir.Stmt) -> bool:
        """Whether no other code shares a line with ``statement``."""
        return self.starts_line(statement) and self.ends_line(statement)

    def is_elif(self, statement: ir.Stmt) -> bool:
        return isinstance(statement, ir.If) and self.text.startswith("elif", statement.start)

    def extent(self, statement: ir.Stmt) -> tuple[int, int]:
        """The full lines of ``statement`` with the comments that belong to it.

        Those are the comment lines directly above at its own depth, and what trails its lines.

        Raises:
            NoFixError: other code shares its lines.
        """
        if not self.alone(statement) or self.is_elif(statement):
            raise NoFixError(f"`{self.short(statement)}` shares its line with other code")
        start = self.line_start(self.head(statement))
        while start > 0 and self._travels(self.line(start - 1), self.indentation(statement)):
            start = self.line_start(start - 1)
        return start, self.after(statement)

    def _travels(self, line: str, indentation: str) -> bool:
        comment = line.removeprefix(indentation)
        return (
            line.startswith(indentation)
            and comment.startswith("#")
            and not _STAYING_COMMENT.match(comment)
        )

    def after(self, statement: ir.Stmt) -> int:
        """The start of the line where a statement that follows ``statement`` can be put."""
        end = self.line_end(statement.end)
        if not isinstance(statement, COMPOUND):
            return end
        depth = len(self.indentation(statement).expandtabs())
        while end < len(self.text):
            line = self.line(end)
            stripped = line.lstrip()
            deeper = len(line.expandtabs()) - len(stripped.expandtabs()) > depth
            if not (stripped.startswith("#") and deeper):
                break
            end = self.line_end(end)
        return end

    def insert_lines(self, at: int, lines: str) -> Edit:
        """Whole ``lines``, each with its line end, before the line that starts at ``at``."""
        if at == len(self.text) and self.text and not self.text.endswith(("\n", "\r")):
            lines = self.newline + lines.removesuffix(self.newline)
        return self.edit(at, at, lines)

    def delete_lines(self, start: int, end: int) -> Edit:
        """Deletes whole lines, and blank ones below that would add to those above."""
        above = start
        while end < len(self.text) and not self.line(end).strip():
            if above > 0 and self.line(above - 1).strip():
                break
            above = self.line_start(max(above - 1, 0))
            end = self.line_end(end)
        return self.edit(start, end, "")


def _blocks(owner: ir.Node) -> Iterator[Block]:
    for field in fields(owner):
        value = getattr(owner, field.name)
        if isinstance(value, tuple) and value and isinstance(value[0], STATEMENTS):
            yield Block(owner, value)


def require_exact(code: Code) -> None:
    """Raises ``NoFixError`` where the spans of the file cannot be trusted."""
    if not code.module.exact:
        raise NoFixError("the exact places of this file's code are not known")
