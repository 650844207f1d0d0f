"""IPython's own syntax in a code cell, turned into comments of the same length."""

from __future__ import annotations

import re

from fsdplint.files.lexing import TOKEN

# Cell magics whose body is still Python; the body of every other one is not.
_PYTHON_CELL_MAGICS = frozenset({"capture", "prun", "time", "timeit", "python", "python3"})
_CELL_MAGIC = re.compile(r"\s*%%(\w*)")
_MAGIC = re.compile(
    r"""[ \t\f]*(?P<start>
        [!%?]
      | [\w.\[\]]+\?\??[ \t]*(?=[\r\n]|\Z)
      | [\w., \t\[\]*]+=[ \t]*[!%]
      # Automagic: a magic's name at the start of a line, followed by a word as no name can be.
      | (?:pip|conda|mamba|uv|cd|ls|ll|mkdir|rmdir|rm|cp|mv|cat|env)[ \t]+
        (?!(?:in|is|and|or|if|not)\b)[\w./~-]
    )""",
    re.VERBOSE,
)
_LINE = re.compile(r"(?:[^\r\n\\]|\\(?:\r\n|[\s\S])|\\\Z)*")


def mask(cell: str) -> str:
    """``cell`` with magics, shell escapes and help requests as comments, length unchanged."""
    cell_magic = _CELL_MAGIC.match(cell)
    if cell_magic is None:
        return _mask_lines(cell)
    if cell_magic[1] not in _PYTHON_CELL_MAGICS:
        return _comment_lines(cell)
    first = _LINE.match(cell, cell_magic.start(1))
    end = first.end() if first else len(cell)
    return _comment_lines(cell[:end]) + _mask_lines(cell[end:])


def _mask_lines(cell: str) -> str:
    parts: list[str] = []
    position = 0
    while position < len(cell):
        magic = _MAGIC.match(cell, position)
        if magic is None:
            end = _logical_line_end(cell, position)
            parts.append(cell[position:end])
        else:
            line = _LINE.match(cell, position)
            end = line.end() if line else len(cell)
            indent = cell[position : magic.start("start")]
            parts.append(indent + _statement(cell[magic.start("start") : end], bool(indent)))
            newline = _logical_line_end(cell, end)
            parts.append(cell[end:newline])
            end = newline
        position = end
    return "".join(parts)


def _statement(magic: str, indented: bool) -> str:
    # An indented magic may be all there is in a block, which a comment would leave empty.
    if indented and len(magic) > 1 and magic[1] not in "\r\n":
        return "0#" + _comment_lines(magic[1:])[1:]
    return _comment_lines(magic)


def _comment_lines(text: str) -> str:
    return re.sub(r"(?m)^(?![\r\n])[\s\S]", "#", text.replace("\\\r", "#\r").replace("\\\n", "#\n"))


def _logical_line_end(cell: str, position: int) -> int:
    depth = 0
    for token in TOKEN.finditer(cell, position):
        if token.lastgroup == "open":
            depth += 1
        elif token.lastgroup == "close":
            depth = max(depth - 1, 0)
        elif token.lastgroup == "newline" and depth == 0:
            return token.end()
    return len(cell)
