"""Long lines of new code, broken as a formatter does."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.files.lexing import TOKEN
from fsdplint.fixes.code import Code

# Black's line length.
WIDTH = 88
_OPENING, _CLOSING = "([{", ")]}"
_MARK = re.compile(r"[][(){},]")


def wrapped(line: str, unit: str, width: int = WIDTH) -> list[str]:
    """Break a long line in the brackets that it ends with: what they hold goes on a line of its
    own, or if that is too long, each item does.

    Args:
        unit: one level of indentation.
        width: how many columns there are for the line with its own indentation.
    """
    body = line.rstrip(",:")
    opened = [at for at, mark, depth in _marks(body) if mark in _OPENING and not depth]
    if len(line) <= width or not opened or not body.endswith(tuple(_CLOSING)):
        return [line]
    start, end = opened[-1] + 1, len(body) - 1
    first, inside, last = line[:start], line[start:end], line[end:]
    called = re.search(r"[\w\])]$", first[:-1]) is not None
    if not inside or (called and first.endswith("[")):
        return [line]
    own = line[: len(line) - len(line.lstrip())]
    indent = own + unit
    lines = [indent + inside]
    if len(lines[0]) > width:
        items = items_of(inside)
        single = " for " in _outside(inside) or (
            first.endswith("(") and not called and len(items) == 1
        )
        parts = [inside] if single else [f"{item}," for item in items]
        lines = [each for part in parts for each in wrapped(indent + part, unit, width)]
    return [first, *lines, own + last]


def _outside(text: str) -> str:
    """Return the parts of ``text`` that are in no brackets."""
    found, last = "", 0
    for at, mark, depth in _marks(text):
        if mark in _OPENING and not depth:
            found += text[last:at]
        elif mark in _CLOSING and not depth:
            last = at + 1
    return found + text[last:]


def on_one_line(code: Code, value: ir.Expr) -> str:
    """Return the source of an expression without its line ends, unless comments need them."""
    text = code.slice(value)
    if code.comments(value.start, value.end) or '"""' in text or "'''" in text:
        return text
    return joined(text)


def joined(text: str) -> str:
    """Return code without comments on one line."""
    lines = [line.strip() for line in text.splitlines()]
    text = re.sub(r"([(\[{]) ", r"\1", " ".join(lines))
    return re.sub(r",? ([)\]}])", r"\1", text) if len(lines) > 1 else text


def _marks(text: str) -> Iterator[tuple[int, str, int]]:
    """Yield the place of each bracket and comma outside strings, and how many are around it."""
    depth = 0
    strings = [t.span() for t in TOKEN.finditer(text) if t.lastgroup == "string"]
    for found in _MARK.finditer(text):
        at, mark = found.start(), found.group()
        if any(start <= at < end for start, end in strings):
            continue
        depth -= mark in _CLOSING
        yield at, mark, depth
        depth += mark in _OPENING


def items_of(text: str) -> list[str]:
    """Return what commas separate."""
    commas = [at for at, mark, depth in _marks(text) if mark == "," and not depth]
    edges = zip([0, *(at + 1 for at in commas)], [*commas, len(text)], strict=True)
    return [item for start, end in edges if (item := text[start:end].strip())]
