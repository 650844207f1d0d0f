"""Text to LibCST tree, with the character span of every syntactic node from one rendering pass.

LibCST's own position metadata costs about one and a half parses; recording token indexes while
the tree renders itself costs a quarter of one and gives offsets, which is what edits need.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import accumulate

import libcst as cst
from libcst._nodes.internal import CodegenState

from fsdplint.files.invalid import InvalidSyntax, TooDemanding, expect_parsable
from fsdplint.files.lexing import lines


@dataclass(frozen=True, slots=True)
class Syntax:
    """A parsed module.

    Attributes:
        exact: the tree renders to exactly the text it was parsed from; where it does not, spans
            are approximate and nothing may be edited.
    """

    tree: cst.Module
    spans: dict[cst.CSTNode, tuple[int, int]]
    exact: bool


def parse(text: str) -> Syntax:
    """Parse a module.

    Raises:
        InvalidSyntax: if LibCST rejects the text.
        TooDemanding: if LibCST would take minutes over it, or crash.
    """
    expect_parsable(text)
    try:
        return parsed(text)
    except (RecursionError, MemoryError) as error:
        raise TooDemanding("too deeply nested to parse") from error


def parsed(text: str) -> Syntax:
    """Parse a module without limits.

    Raises:
        InvalidSyntax: if LibCST rejects the text.
        RecursionError, MemoryError: if it is nested too deeply or too large.
    """
    try:
        tree = cst.parse_module(text)
    except cst.ParserSyntaxError as error:
        above = lines(text)[: error.raw_line - 1]
        offset = sum(map(len, above)) + error.raw_column
        reason = error.message.splitlines()[0].rstrip(".: ")
        raise InvalidSyntax(reason, min(offset, len(text))) from None
    except (cst.CSTValidationError, ValueError) as error:  # e.g. a NUL byte
        raise InvalidSyntax(str(error).splitlines()[0], 0) from None
    state = _Recorder(tree.default_indent, tree.default_newline)
    tree._codegen(state)
    rendered = "".join(state.tokens)
    anchors = None if rendered == text else _anchors(rendered, text)
    ends = [0, *accumulate(map(len, state.tokens))]
    starts = ends
    if anchors is not None:
        starts = [anchors[end] for end in ends]
        ends = [anchors[end - 1] + 1 if end else 0 for end in ends]
    last = len(ends) - 1
    spans = {
        node: (starts[min(first, last)], ends[min(after, last)])
        for node, (first, after) in state.indexes.items()
    }
    return Syntax(tree, spans, rendered == text or anchors is not None)


def _anchors(rendered: str, text: str) -> list[int] | None:
    """Return, for every offset in LibCST's rendering, the offset in the original text.

    LibCST drops some blanks, e.g. before the colon of an ``except`` or a form feed. None if the two
    differ in more than blanks.
    """
    anchors, at = [], 0
    for character in rendered:
        while at < len(text) and text[at] != character and text[at].isspace():
            at += 1
        if at >= len(text) or text[at] != character:
            return None
        anchors.append(at)
        at += 1
    anchors.append(at)
    return None if text[at:].strip() else anchors


class _Recorder(CodegenState):
    """Renders a tree and notes, per node, the index of its first token and the one after it."""

    def __init__(self, indent: str, newline: str) -> None:
        super().__init__(default_indent=indent, default_newline=newline)
        self.indexes: dict[cst.CSTNode, tuple[int, int]] = {}
        self.open: list[tuple[cst.CSTNode, int, cst.CSTNode | None]] = []
        self.closer = _Closer(self)

    def record_syntactic_position(  # type: ignore[override]  # LibCST's is a generator
        self,
        node: cst.CSTNode,
        *,
        start_node: cst.CSTNode | None = None,
        end_node: cst.CSTNode | None = None,
    ) -> AbstractContextManager[None]:
        first = len(self.tokens)
        if start_node is not None:
            first = self.indexes.get(start_node, (first, 0))[0]
        self.open.append((node, first, end_node))
        return self.closer


class _Closer(AbstractContextManager[None]):
    def __init__(self, state: _Recorder) -> None:
        self.state = state

    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: object) -> None:
        state = self.state
        node, first, end_node = state.open.pop()
        after = len(state.tokens)
        if end_node is not None and end_node in state.indexes:
            after = state.indexes[end_node][1]
        state.indexes[node] = (first, after)
