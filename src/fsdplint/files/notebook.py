"""Jupyter notebooks: code cells to text, and edited text back into otherwise untouched JSON."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import PurePath

from fsdplint.files.decoding import SourceError
from fsdplint.files.lexing import TOKEN

_WHITESPACE = " \t\r\n"
_DECODER = json.JSONDecoder(strict=False)


@dataclass(frozen=True, slots=True)
class Cell:
    """A code cell: its place among all cells from 1, its source, and that value in the JSON."""

    number: int
    source: str
    start: int
    end: int

    @property
    def code(self) -> str:
        """The source as Python, ending with a line end."""
        code = mask(self.source)
        ended = code if code.endswith("\n") else code + "\n"
        return ended + _END_OF_SCRIPT if self.script else ended

    @property
    def script(self) -> str:
        """The name of the script that the cell writes to a file; empty if it writes none."""
        return "" if self._appends else self._name

    @property
    def appended(self) -> str:
        """The name of the script that the cell adds to; empty if it adds to none."""
        return self._name if self._appends else ""

    @property
    def body(self) -> str:
        """What the cell writes to its script or adds to it, ending with a line end."""
        body = self.source[self._writes.end() :] if self._writes else ""
        return body if body.endswith("\n") else f"{body}\n"

    @property
    def without_magic(self) -> str:
        """The `code` with the line blank that says which script the rest is."""
        magic = self._writes
        end = magic.end() if magic and self.script else 0
        return re.sub(r"[^\r\n]", " ", self.code[:end]) + self.code[end:]

    @property
    def _name(self) -> str:
        parts = self._writes["name"].split("/") if self._writes else ()
        return "/".join(part for part in parts if part not in _NO_FOLDER)

    @property
    def _appends(self) -> bool:
        return self._writes is not None and self._writes["appends"] is not None

    @property
    def _writes(self) -> re.Match[str] | None:
        return _WRITES.match(self.source)


@dataclass(frozen=True)
class Notebook:
    """The JSON document and its code cells that are not empty."""

    document: str
    cells: tuple[Cell, ...]

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *accumulate(len(cell.code) for cell in self.cells)]

    def locate(self, offset: int) -> tuple[int, int] | None:
        """Return the 1-based cell and line in it of an ``offset`` into the joined code."""
        if not self.cells:
            return None
        index = min(bisect_right(self._starts, offset), len(self.cells)) - 1
        cell = self.cells[index]
        return cell.number, cell.code.count("\n", 0, offset - self._starts[index]) + 1

    def lines_before(self, number: int) -> int:
        """Return how many lines the joined code has before the cell of that number."""
        return sum(cell.code.count("\n") for cell in self.cells if cell.number < number)

    def programs(self) -> dict[str, str]:
        """Return the code of the notebook itself, named "", and of each script that it writes.

        Each has the length of the joined code, with comments in the place of all other cells. Of
        a script that is written several times, the last is there; one that is written piece by
        piece is not.
        """
        pieced = {cell.appended for cell in self.cells}
        written = {cell.script: index for index, cell in enumerate(self.cells)}
        chosen = {name: {index} for name, index in written.items() if name not in pieced}
        chosen[""] = {index for index, cell in enumerate(self.cells) if not cell.script}
        return {
            name: "".join(
                cell.without_magic if index in own else _comments(cell.code)
                for index, cell in enumerate(self.cells)
            )
            for name, own in chosen.items()
        }

    def in_document(self, start: int, end: int) -> tuple[int, int]:
        """Return the half-open range in the document of ``start`` to ``end`` in the joined code."""
        first, _ = self._written(start)
        if start == end:
            return first, first
        _, last = self._written(end - 1)
        return first, max(first, last)

    def _written(self, offset: int) -> tuple[int, int]:
        """Return the range in the document of one character, or the end of its cell's source."""
        index = min(bisect_right(self._starts, offset), len(self.cells)) - 1
        cell = self.cells[index]
        characters = written(self.document, cell.start, cell.end)
        inside = offset - self._starts[index]
        if inside < len(characters):
            return characters[inside]
        end = characters[-1][1] if characters else cell.start + 1
        return end, end

    def replace(self, old: str, new: str) -> str:
        """Return the document with the joined code ``old`` replaced by ``new``."""
        parts: list[str] = []
        position = 0
        for cell, source in zip(self.cells, self._sources(old, new), strict=True):
            if source != cell.source:
                parts.append(self.document[position : cell.start])
                parts.append(_dump(source, self.document[cell.start : cell.end]))
                position = cell.end
        return "".join([*parts, self.document[position:]])

    def _sources(self, old: str, new: str) -> list[str]:
        """Return the source of each cell once the joined code ``old`` has become ``new``.

        Lines of IPython's own syntax, which are comments in the joined code, get their text back.
        """
        if old == new:
            return [cell.source for cell in self.cells]
        masked = [line for cell in self.cells for line in _split(cell.code)]
        originals = [line for cell in self.cells for line in _lines(cell)]
        owners = [index for index, cell in enumerate(self.cells) for _ in _lines(cell)]
        magics = {m: o for m, o in zip(masked, originals, strict=True) if m != o}
        sources = [""] * len(self.cells)
        new_lines = _split(new)
        for tag, i, j, k, end in _changes(masked, new_lines):
            if tag == "equal":
                for line in range(i, j):
                    sources[owners[line]] += originals[line]
            else:
                # Text put in between two cells belongs to the one whose lines it replaces, and
                # an insertion to the cell that goes on after it.
                # Nothing can stand above the magic of a cell.
                at = min(i, len(owners) - 1)
                above = i == j and at > 0 and masked[at] != originals[at]
                owner = owners[at - 1] if above and owners[at - 1] != owners[at] else owners[at]
                sources[owner] += "".join(magics.get(line, line) for line in new_lines[k:end])
        return [_unended(s, cell.source) for s, cell in zip(sources, self.cells, strict=True)]


def is_written(path: PurePath) -> bool:
    """True if a path is that of a script that a notebook writes, below the notebook's."""
    return any(folder.suffix == ".ipynb" for folder in path.parents)


def parse_notebook(document: str, path: str) -> tuple[str, Notebook]:
    """Return the joined code of a notebook's Python cells, and the notebook to write edits into.

    A notebook whose kernel is another language has no Python cells.

    Raises:
        SourceError: the text is no notebook of nbformat 4.
    """
    try:
        cells = tuple(_code_cells(document))
        language = _language(json.loads(document, strict=False))
    except IndexError as error:
        raise SourceError(path, "not a Jupyter notebook: the JSON is incomplete") from error
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise SourceError(path, f"not a Jupyter notebook: {error}") from error
    notebook = Notebook(document, cells if language == "python" else ())
    code = "".join(cell.code for cell in notebook.cells)
    if any("\ud800" <= character <= "\udfff" for character in code):
        raise SourceError(path, "contains half of a surrogate pair, which Python cannot encode")
    return code, notebook


def _language(notebook: dict[str, dict[str, dict[str, str]]]) -> str:
    metadata = notebook.get("metadata", {})
    language = metadata.get("language_info", {}).get("name")
    return (language or metadata.get("kernelspec", {}).get("language") or "python").lower()


def _code_cells(document: str) -> Iterator[Cell]:
    top = dict(_members(document, _skip(document, 0)))
    if "cells" not in top:
        raise ValueError("no cells")
    for number, start in enumerate(_items(document, top["cells"]), 1):
        members = dict(_members(document, start))
        kind, _ = _DECODER.raw_decode(document, members["cell_type"])
        if kind != "code":
            continue
        source, end = _DECODER.raw_decode(document, members["source"])
        text = source if isinstance(source, str) else "".join(source)
        yield Cell(number, text, members["source"], end)


def _members(document: str, start: int) -> Iterator[tuple[str, int]]:
    """Yield the keys of the object at ``start`` with the offsets of their values."""
    if document[start] != "{":
        raise ValueError(f"expected an object at character {start}")
    position = _skip(document, start + 1)
    while document[position] != "}":
        key, position = _DECODER.raw_decode(document, position)
        value = _skip(document, _skip(document, position) + 1)
        yield key, value
        position = _after_value(document, value)


def _items(document: str, start: int) -> Iterator[int]:
    """Yield the offsets of the values in the array at ``start``."""
    if document[start] != "[":
        raise ValueError(f"expected an array at character {start}")
    position = _skip(document, start + 1)
    while document[position] != "]":
        yield position
        position = _after_value(document, position)


def _after_value(document: str, start: int) -> int:
    _, end = _DECODER.raw_decode(document, start)
    position = _skip(document, end)
    return _skip(document, position + 1) if document[position] == "," else position


def _skip(document: str, position: int) -> int:
    while document[position] in _WHITESPACE:
        position += 1
    return position


def _lines(cell: Cell) -> list[str]:
    source = cell.source if cell.source.endswith("\n") else cell.source + "\n"
    return [*_split(source), ""] if cell.script else _split(source)


def _split(text: str) -> list[str]:
    # Not str.splitlines, which also splits at form feeds and other separators within strings.
    return [line for line in re.split(r"(?<=\n)", text) if line]


def _unended(source: str, original: str) -> str:
    return source if original.endswith("\n") else source.removesuffix("\n")


def _changes(old: list[str], new: list[str]) -> list[tuple[str, int, int, int, int]]:
    """Return how lines of ``old`` became lines of ``new``, as ``SequenceMatcher`` opcodes."""
    head = _common_prefix(old, new)
    tail = _common_prefix(old[head:][::-1], new[head:][::-1])
    old_end, new_end = len(old) - tail, len(new) - tail
    from difflib import SequenceMatcher  # for edited notebooks alone

    matcher = SequenceMatcher(None, old[head:old_end], new[head:new_end], autojunk=False)
    middle = [
        (t, i + head, j + head, k + head, e + head) for t, i, j, k, e in matcher.get_opcodes()
    ]
    first = ("equal", 0, head, 0, head)
    last = ("equal", old_end, len(old), new_end, len(new))
    return [first, *middle, last]


def _common_prefix(one: list[str], two: list[str]) -> int:
    unequal = (n for n, (a, b) in enumerate(zip(one, two, strict=False)) if a != b)
    return next(unequal, min(len(one), len(two)))


def _dump(source: str, original: str) -> str:
    """Return ``source`` as JSON in the form of ``original``; unchanged strings stay as they are."""
    ascii_only = original.isascii()
    if original.startswith('"'):
        return json.dumps(source, ensure_ascii=ascii_only)
    written = {}
    ends = []
    for start in _items(original, 0):
        text, end = _DECODER.raw_decode(original, start)
        written[text] = original[start:end]
        ends.append((start, end))
    separator = original[ends[0][1] : ends[1][0]] if len(ends) > 1 else ", "
    items = [
        written.get(line) or json.dumps(line, ensure_ascii=ascii_only) for line in _split(source)
    ]
    return original[: ends[0][0]] + separator.join(items) + original[ends[-1][1] :]


_STRING = re.compile(r'"((?:\\.|[^"\\])*)"', re.DOTALL)
# A character outside the basic plane may be written as a pair of escapes.
_CHARACTER = re.compile(
    r"\\u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|\\u[\da-fA-F]{4}|\\.|.", re.DOTALL
)


def written(document: str, start: int, end: int) -> list[tuple[int, int]]:
    """Return the half-open offsets of each character of the string or strings at ``start``.

    Args:
        end: the offset after the value.
    """
    return [
        character.span()
        for string in _STRING.finditer(document, start, end)
        for character in _CHARACTER.finditer(document, string.start(1), string.end(1))
    ]


# IPython's own syntax in a code cell, as comments of the same length

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
# What writes the rest of a cell to a file.
_WRITES = re.compile(
    r"""\s*%%(?:write)?file[ \t]+(?P<appends>(?:-a|--append)[ \t]+)?
        (?P<quote>["']?)(?P<name>[\w./~-]+\.py)(?P=quote)[ \t]*(?:\r?\n|\Z)""",
    re.VERBOSE,
)
_NO_FOLDER = frozenset({"", ".", "..", "~"})
# The last line of a script, so that what is added at its end belongs to its cell.
_END_OF_SCRIPT = "# end of the script\n"
_MAGIC_LINE = re.compile(r"(?:[^\r\n\\]|\\(?:\r\n|[\s\S])|\\\Z)*")


def mask(cell: str) -> str:
    """Return ``cell`` with magics, shell escapes and help requests as comments of equal length."""
    cell_magic = _CELL_MAGIC.match(cell)
    if cell_magic is None:
        return _mask_lines(cell)
    writes = _WRITES.match(cell)
    if writes and not writes["appends"]:
        return _comment_lines(cell[: writes.end()]) + cell[writes.end() :]
    if cell_magic[1] not in _PYTHON_CELL_MAGICS:
        return _comment_lines(cell)
    first = _MAGIC_LINE.match(cell, cell_magic.start(1))
    end = first.end() if first else len(cell)
    return _comment_lines(cell[:end]) + _mask_lines(cell[end:])


def _mask_lines(cell: str) -> str:
    """Return ``cell`` with the lines that are IPython's own syntax as comments."""
    parts: list[str] = []
    position = 0
    while position < len(cell):
        magic = _MAGIC.match(cell, position)
        if magic is None:
            end = _logical_line_end(cell, position)
            parts.append(cell[position:end])
        else:
            line = _MAGIC_LINE.match(cell, position)
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


def _comments(code: str) -> str:
    """Return as many comments as there are lines in ``code``, as long as they are."""
    return re.sub(r"[^\r\n]+", lambda line: "#" + " " * (len(line[0]) - 1), code)


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
