"""One file as fixes see it: its tree, and the lines and comments of its statements."""

from __future__ import annotations

import functools
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ParamSpec

from fsdplint.engine import ir
from fsdplint.engine.frontend.tree import COMPOUND, Tree, blocks
from fsdplint.files.lexing import NEWLINE, TOKEN
from fsdplint.finding import Edit, Fix, Span

P = ParamSpec("P")

# Comments that refer to a place in the file, not to the statement under them.
_STAYING_COMMENT = re.compile(r"#!|#.*?coding[:=]|# ?%%|# ?In ?\[|# ?fmt: |# ?(end)?region\b")

_BY_HAND = "apply the change by hand"


@dataclass(frozen=True, slots=True)
class Declined:
    """Why there is no fix, and what to do by hand: one sentence without a full stop."""

    reason: str


class NoFixError(Exception):
    """Raised anywhere below a builder; the message is the reason of its ``Declined``."""


@dataclass(frozen=True)
class Code(Tree):
    """A file's tree with what edits need to know about its text."""

    @classmethod
    @lru_cache(maxsize=16)  # a rule's fixes are in few files at a time
    def of(cls, tree: Tree) -> Code:
        return cls(tree.path, tree.text, tree.module, tree.is_private)

    # Order

    def precedes(self, statement: ir.Stmt, use: ir.Node) -> bool:
        """True if ``statement`` has surely run whenever ``use`` runs, even in a function."""
        before = self.block(statement).statements
        around = next((n for n in (use, *self.ancestors(use)) if n in before), None)
        return around is not None and before.index(statement) < before.index(around)

    # Text

    def short(self, node: ir.Node) -> str:
        """Return the first line of ``node``'s text without its comment, shortened for a message."""
        end = node.start + len(NEWLINE.split(self.slice(node))[0])
        inside = (s for k, s, _ in self._comments_and_strings if k == "comment")
        end = next((start for start in inside if node.start <= start < end), end)
        first = self.text[node.start : end].strip()
        return first if len(first) <= 50 else first[:47] + "..."

    def edit(self, start: int, end: int, text: str) -> Edit:
        return Edit(Span(self.path, start, end), text)

    def span(self, node: ir.Node) -> Span:
        return Span(self.path, node.start, node.end)

    @cached_property
    def newline(self) -> str:
        found = NEWLINE.search(self.text)
        return "\n" if found is None else found.group()

    @cached_property
    def unit(self) -> str:
        """One level of indentation, taken from the file's first indented block."""
        for node in ir.walk(self.module):
            for block in () if isinstance(node, ir.Module) else blocks(node):
                inner, outer = self.indentation(block.statements[0]), self.indentation(node)
                if self.starts_line(block.statements[0]) and inner != outer:
                    return inner.removeprefix(outer)
        return "    "

    @cached_property
    def _comments_and_strings(self) -> list[tuple[str, int, int]]:
        tokens = TOKEN.finditer(self.text)
        kinds = ("comment", "string")
        return [(t.lastgroup, *t.span()) for t in tokens if t.lastgroup in kinds]

    def comments(self, start: int, end: int) -> bool:
        """True if a comment begins between the two offsets."""
        return any(k == "comment" and start <= s < end for k, s, _ in self._comments_and_strings)

    def comments_in(self, start: int, end: int) -> list[str]:
        """Return the comments that begin between the two offsets."""
        found = self._comments_and_strings
        return [self.text[s:e] for k, s, e in found if k == "comment" and start <= s < end]

    def in_string(self, offset: int) -> bool:
        """True if ``offset`` is inside a string."""
        return any(k == "string" and s < offset < e for k, s, e in self._comments_and_strings)

    # Lines

    def breaks(self, start: int, end: int) -> bool:
        """True if a line ends between the two offsets."""
        return NEWLINE.search(self.text, start, end) is not None

    def line_start(self, offset: int) -> int:
        return self._lines[bisect_right(self._lines, offset) - 1]

    def line_end(self, offset: int) -> int:
        """Return the offset after the line end of the line that contains ``offset``."""
        following = bisect_right(self._lines, offset)
        return self._lines[following] if following < len(self._lines) else len(self.text)

    def line(self, offset: int) -> str:
        """Return the line that contains ``offset``, without its line end."""
        return self.text[self.line_start(offset) : self.line_end(offset)].rstrip("\r\n")

    def code_lines(self, start: int, end: int) -> Iterator[int]:
        """Yield the starts of lines that can be indented: neither blank nor inside a string."""
        while start < end:
            if self.line(start).strip() and not self.in_string(start):
                yield start
            start = self.line_end(start)

    def head(self, node: ir.Node) -> int:
        """Return where ``node`` begins, including its decorators."""
        decorators: tuple[ir.Expr, ...] = ()
        if isinstance(node, ir.ClassDef):
            decorators = node.decorators
        elif isinstance(node, ir.FunctionDef):
            decorators = node.function.decorators
        if not decorators:
            return node.start
        return self.text.rindex("@", 0, decorators[0].start)

    def indentation(self, node: ir.Node) -> str:
        """Return the whitespace at the start of the first line of ``node``."""
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
        """True if no other code shares a line with ``statement``."""
        return self.starts_line(statement) and self.ends_line(statement)

    def is_elif(self, statement: ir.Stmt) -> bool:
        """True if the text has it as an arm of another statement."""
        if isinstance(statement, ir.Case):
            return True
        return isinstance(statement, ir.If) and self.text.startswith("elif", statement.start)

    def extent(self, statement: ir.Stmt) -> tuple[int, int]:
        """Return the full lines of ``statement`` with the comments that belong to it.

        Those are comment lines directly above at the same depth, and trailing comments.

        Raises:
            NoFixError: other code shares its lines, or it is an arm of another statement.
        """
        if self.is_elif(statement):
            raise NoFixError(
                f"`{self.short(statement)}` is a branch of a larger statement; {_BY_HAND}"
            )
        if not self.alone(statement):
            raise NoFixError(
                f"`{self.short(statement)}` shares its line with other code; put it on its own line"
            )
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
        """Return the start of the line where a following statement can be inserted."""
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
        """Insert whole ``lines``, each with its line end, before the line that starts at ``at``."""
        if at == len(self.text) and self.text and not self.text.endswith(("\n", "\r")):
            lines = self.newline + lines.removesuffix(self.newline)
        return self.edit(at, at, lines)

    def delete_lines(self, start: int, end: int) -> Edit:
        """Delete whole lines, and blank ones below that would add to those above."""
        above = start
        while end < len(self.text) and not self.line(end).strip():
            if above > 0 and self.line(above - 1).strip():
                break
            above = self.line_start(max(above - 1, 0))
            end = self.line_end(end)
        return self.edit(start, end, "")

    def unwrapped(self, owner: ir.With | ir.If, head: str = "") -> list[Edit]:
        """Return the edits that replace a compound statement by its body, dedented, without the
        blank lines that it begins with.

        Args:
            head: lines that replace its header; without them the header may hold no comment.

        Raises:
            NoFixError: the header or the body shares a line with other code.
        """
        first = owner.body[0]
        if not self.starts_line(owner) or not self.starts_line(first):
            raise NoFixError(
                f"`{self.short(owner)}` shares its line with other code; put it on its own line"
            )
        last = owner.test if isinstance(owner, ir.If) else owner.items[-1]
        start, inside = self.line_start(owner.start), self.line_end(self.text.index(":", last.end))
        if not head and self.comments(start, inside):
            raise NoFixError(f"`{self.short(owner)}` has a comment in its header; {_BY_HAND}")
        while not head and not self.line(inside).strip():
            inside = self.line_end(inside)
        extra = self.indentation(first).removeprefix(self.indentation(owner))
        lines = self.code_lines(inside, self.after(owner))
        deeper = (line for line in lines if self.text.startswith(extra, line))
        return [
            self.edit(start, inside, head),
            *(self.edit(line, line + len(extra), "") for line in deeper),
        ]


def require_exact(code: Code) -> None:
    """Raise ``NoFixError`` if the spans of the file cannot be trusted."""
    if not code.module.exact or not all(f.suite.lowered.exact for f in code.functions):
        raise NoFixError(f"the exact positions of this file's code are unknown; {_BY_HAND}")


def builder(build: Callable[P, Fix]) -> Callable[P, Fix | Declined]:
    """Turn a function that raises ``NoFixError`` into one that returns ``Declined``.

    If its first argument is a file's ``Code`` with inexact spans, it declines without a try.
    """

    @functools.wraps(build)
    def answer(*args: P.args, **kwargs: P.kwargs) -> Fix | Declined:
        try:
            if isinstance(args[0], Code):
                require_exact(args[0])
            fix = build(*args, **kwargs)
        except NoFixError as reason:
            return Declined(str(reason))
        # Files are written one by one, so a fix in several files could be half written.
        assert len({edit.span.path for edit in fix.edits}) == 1
        return fix

    return answer


def is_docstring(statement: ir.Stmt) -> bool:
    """True for a statement that is nothing but a constant."""
    return isinstance(statement, ir.Expression) and isinstance(statement.value, ir.Constant)
