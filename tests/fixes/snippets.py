"""A text with places marked in it, as the code and nodes a fix is asked about.

A place is written ``<name:code:name>``; the marks are taken out before the text is lowered.
"""

from __future__ import annotations

import re
from typing import get_args

from fsdplint.engine import ir
from fsdplint.engine.frontend.lower import lower
from fsdplint.finding import Fix
from fsdplint.fixes.code import Code, Declined
from fsdplint.fixes.edits import apply

PATH = "/train.py"
_EXPR: tuple[type[ir.Node], ...] = get_args(ir.Expr)


class Snippet:
    """``code`` of the text without marks, and by name the outermost expression at each mark."""

    def __init__(self, marked: str) -> None:
        text, spans = _unmark(marked)
        self.code = Code(PATH, text, lower(text, PATH), lambda: True)
        self.spans = spans

    def __getitem__(self, name: str) -> ir.Node:
        start, end = self.spans[name]
        nodes = ir.walk(self.code.module)
        return next(n for n in nodes if isinstance(n, _EXPR) and (n.start, n.end) == (start, end))

    def fixed(self, result: Fix | Declined) -> str:
        assert isinstance(result, Fix), result
        text = apply(self.code.text, result.edits)
        compile(text, PATH, "exec", dont_inherit=True)
        return text


def _unmark(marked: str) -> tuple[str, dict[str, tuple[int, int]]]:
    spans: dict[str, tuple[int, int]] = {}
    open_: list[tuple[str, int]] = []
    text = ""
    for part in re.split(r"(<\w+:|:\w+>)", marked):
        if re.fullmatch(r"<\w+:", part):
            open_.append((part[1:-1], len(text)))
        elif re.fullmatch(r":\w+>", part):
            name, start = open_.pop()
            assert name == part[1:-1], f"{name} is closed by {part}"
            spans[name] = (start, len(text))
        else:
            text += part
    return text, spans


def reason(result: Fix | Declined) -> str:
    assert isinstance(result, Declined), result
    return result.reason
