"""Bytes of a Python file to text, by the byte order mark and the PEP 263 cookie."""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from tokenize import detect_encoding

_FIRST_TWO_LINES = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)?[^\r\n]*")
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


class SourceError(Exception):
    """A file that cannot be read as source text.

    Attributes:
        path: the file.
        reason: one line, without the path.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class Skipped(SourceError):
    """A file that is skipped on purpose: it is not a regular file, or too demanding."""


def decode(data: bytes, path: str) -> tuple[str, str, bool]:
    """Return the text of ``data``, the codec it is in, and whether a byte order mark preceded it.

    Raises:
        SourceError: an unknown or contradicted encoding, bytes outside it, or a NUL byte.
    """
    if b"\0" in data:
        raise SourceError(path, "not Python source: it contains a NUL byte")
    bom = data.startswith(BOM_UTF8)
    encoding = _declared_encoding(data, path)
    try:
        text = data.removeprefix(BOM_UTF8).decode(encoding)
    except UnicodeDecodeError as error:
        raise SourceError(path, _undecodable(data, encoding, error)) from error
    except (LookupError, UnicodeError) as error:
        raise SourceError(path, f"cannot be decoded as {encoding}: {error}") from error
    return text, encoding, bom


def _declared_encoding(data: bytes, path: str) -> str:
    head = _FIRST_TWO_LINES.match(data)
    if head is None or b"coding" not in head[0]:
        return "utf-8"
    lines = _LINE.finditer(head[0])
    try:
        encoding, _ = detect_encoding(lambda: next(lines)[0])
    except SyntaxError as error:
        raise SourceError(path, str(error.msg)) from error
    return "utf-8" if encoding == "utf-8-sig" else encoding


def _undecodable(data: bytes, encoding: str, error: UnicodeDecodeError) -> str:
    line = len(re.findall(rb"\r\n|\r|\n", data[: error.start])) + 1
    byte = error.object[error.start]
    return f"line {line} is not {encoding} (byte 0x{byte:02x}): {error.reason}"
