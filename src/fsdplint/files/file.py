"""A source file: its decoded text, where its lines are, and how to write it back."""

from __future__ import annotations

import os
import stat
from bisect import bisect_right
from codecs import BOM_UTF8
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fsdplint.files import disk
from fsdplint.files.decoding import Skipped, SourceError, decode
from fsdplint.files.lexing import NEWLINE
from fsdplint.files.notebook import Notebook, parse_notebook

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


@dataclass(frozen=True)
class SourceFile:
    """Text as Python reads it, with what is needed to write the same bytes back.

    Attributes:
        path: absolute, with forward slashes; symbolic links are kept.
        text: no byte order mark, line endings untouched; for a notebook its code cells one
            after the other, with IPython magics turned into comments of the same length.
        notebook: where the cells are in the JSON, or None for a plain file.
        exact: whether `encode` gives the bytes that were read; some encodings have several forms.
    """

    path: str
    text: str
    encoding: str = "utf-8"
    bom: bool = False
    notebook: Notebook | None = None
    exact: bool = True

    @cached_property
    def _starts(self) -> list[int]:
        return [0, *(newline.end() for newline in NEWLINE.finditer(self.text))]

    def position(self, offset: int) -> tuple[int, int]:
        """Return the 1-based line and column, in characters, of ``offset``."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def offset(self, line: int, column: int) -> int:
        """Return the offset of a 1-based line and column, clamped to the line and the text."""
        if line > len(self._starts):
            return len(self.text)
        start = self._starts[max(line, 1) - 1]
        return min(start + max(column, 1) - 1, start + len(self.line(line)))

    def line(self, number: int) -> str:
        """Return the 1-based line ``number`` without its line ending."""
        start = self._starts[number - 1]
        end = self._starts[number] if number < len(self._starts) else len(self.text)
        return self.text[start:end].rstrip("\r\n")

    @property
    def document(self) -> SourceFile:
        """This file as it is stored, where services show it: of a notebook, its JSON."""
        return self if self.notebook is None else self._json

    @cached_property
    def _json(self) -> SourceFile:
        assert self.notebook is not None
        return SourceFile(self.path, self.notebook.document, self.encoding, self.bom)

    @cached_property
    def programs(self) -> dict[str, str]:
        """The text as an engine runs it, named ""; of a notebook, the scripts that it writes too.

        They have the length of `text`, so that an offset means the same place in each.
        """
        return {"": self.text} if self.notebook is None else self.notebook.programs()

    def in_document(self, start: int, end: int) -> tuple[int, int]:
        """Return the half-open range in `document` of ``start`` to ``end`` in the text."""
        return self.notebook.in_document(start, end) if self.notebook else (start, end)

    def cell(self, line: int) -> tuple[int, int] | None:
        """Return the 1-based cell and the line in that cell, or None outside notebooks."""
        return self.notebook.locate(self.offset(line, 1)) if self.notebook else None

    def line_name(self, line: int) -> str:
        """Return "line 47" or, in a notebook, "line 2 of cell 3"."""
        cell = self.cell(line)
        return "line {1} of cell {0}".format(*cell) if cell else f"line {line}"

    def edited(self, text: str) -> SourceFile:
        """Return this file with ``text`` instead of its own.

        Raises:
            SourceError: what is written would not be read as ``text``, since the file's encoding
                lacks a character, is declared elsewhere in it, or has several forms.
        """
        if not self.exact:
            reason = f"its bytes are not in the standard form of {self.encoding}; edit it by hand"
            raise SourceError(self.path, reason)
        edited = from_bytes(self.encode(text), self.path)
        if (edited.text, edited.encoding, edited.bom) != (text, self.encoding, self.bom):
            raise SourceError(
                self.path, "its encoding would change the edited text; edit it by hand"
            )
        return edited

    def encode(self, text: str | None = None) -> bytes:
        """Return the bytes of this file, with ``text`` instead of its own if given.

        Raises:
            SourceError: ``text`` has a character that the file's encoding lacks.
        """
        text = self.text if text is None else text
        document = self.notebook.replace(self.text, text) if self.notebook else text
        try:
            data = document.encode(self.encoding)
        except UnicodeError as error:
            raise SourceError(
                self.path, f"cannot be written as {self.encoding}: {error}"
            ) from error
        return BOM_UTF8 + data if self.bom else data


def from_text(text: str, path: str) -> SourceFile:
    """Return a plain file at ``path`` that holds ``text``."""
    return SourceFile(absolute(path), text)


def from_bytes(data: bytes, path: str) -> SourceFile:
    """Return the file at ``path`` with the content ``data``, a notebook if the path ends so.

    Raises:
        SourceError: the content is not text in its encoding, or not a notebook.
    """
    path = absolute(path)
    text, encoding, bom = decode(data, path)
    exact = encoding == "utf-8" or _encoded(text, encoding) == data.removeprefix(BOM_UTF8)
    if not path.endswith(".ipynb"):
        return SourceFile(path, text, encoding, bom, exact=exact)
    code, notebook = parse_notebook(text, path)
    return SourceFile(path, code, encoding, bom, notebook, exact)


def _encoded(text: str, encoding: str) -> bytes | None:
    try:
        return text.encode(encoding)
    except UnicodeError:  # some codecs only decode all of what they know
        return None


def load(path: Path) -> SourceFile:
    """Read the file at ``path``.

    Raises:
        SourceError: it cannot be read, or is no source text; `Skipped` if it is too large.
    """
    try:
        data = regular(path)
    except OSError as error:
        raise SourceError(absolute(path), error.strerror or str(error)) from error
    return from_bytes(data, str(path))


def kind(mode: int) -> str:
    """Return what kind of file an ``st_mode`` describes; "" for a regular one."""
    return "" if stat.S_ISREG(mode) else _KINDS.get(stat.S_IFMT(mode), "a special file")


def regular(path: Path, most: int = disk.MOST) -> bytes:
    """Return the content of the regular file at ``path``, at most ``most`` bytes.

    Raises:
        OSError: it cannot be read.
        SourceError: it is no such file; `Skipped` if it is larger.
    """
    # Before it is opened, which waits at a pipe and may move a device.
    status = disk.status(path)
    special = kind(status.st_mode)
    if special:
        raise SourceError(absolute(path), f"{special}, not a regular file")
    data = disk.content(path, most) if status.st_size <= most else None
    if data is None or len(data) > most:
        raise Skipped(absolute(path), too_large(most))
    return data


def too_large(most: int) -> str:
    """Return why a file that has more than ``most`` bytes is not read."""
    return f"larger than {most // 1_000_000} MB"


def absolute(path: str | Path) -> str:
    """Return the absolute path with forward slashes, ``..`` folded and symbolic links kept."""
    return os.path.abspath(path).replace(os.sep, "/")  # noqa: PTH100 - resolve() follows links
