"""One cached run as bytes. Reading them executes nothing and trusts nothing."""

from __future__ import annotations

from zlib import crc32

from fsdplint.files.disk import CONTENT, INSTALLED, KIND, NAMES, REAL
from fsdplint.urls import DOCUMENTATION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_HEAD = b"fsdplint run 1 "  # raised when what follows is laid out otherwise
_CHECKSUM = 8  # hexadecimal digits
_BETWEEN = "\0"  # which neither a path nor a report can hold
_KINDS = frozenset({CONTENT, INSTALLED, KIND, NAMES, REAL})


class Entry:
    """A run that ended.

    Attributes:
        key: all that decides how a run ends, apart from the disk.
        code: its exit code.
        said: what it printed, in order, and whether on standard error.
        notes: the kind, the path, the signature and the digest of each (see `fsdplint.files.disk`).
    """

    # No dataclass, which takes longer to import than an entry takes to read.
    __slots__ = ("code", "key", "notes", "said")

    def __init__(
        self,
        key: Sequence[str],
        code: int,
        said: Sequence[tuple[bool, str]],
        notes: Sequence[tuple[str, str, str, str]],
    ) -> None:
        self.key = tuple(key)
        self.code = code
        self.said = tuple(said)
        self.notes = tuple(notes)


def encoded(entry: Entry) -> bytes:
    """Return ``entry`` as bytes.

    Raises:
        ValueError: something in it has no place there, such as a control character.
    """
    fields = [str(len(entry.key)), *entry.key, str(entry.code), str(len(entry.said))]
    for aside, text in entry.said:
        _expect_harmless(text)
        fields += [f"{aside:d}", text]
    for note in entry.notes:
        fields += note
    if any(_BETWEEN in field for field in fields):
        raise ValueError("a field holds what is between fields")
    body = _BETWEEN.join(fields).encode("utf-8", "surrogateescape")
    return _HEAD + _checksum(body) + body


def decoded(data: bytes) -> Entry:
    """Return the entry that ``data`` encodes.

    Raises:
        ValueError: it is none, or not wholly.
    """
    start = len(_HEAD) + _CHECKSUM
    body = data[start:]
    if data[:start] != _HEAD + _checksum(body):
        raise ValueError("is no entry")
    fields = body.decode("utf-8", "surrogateescape").split(_BETWEEN)
    key, fields = _counted(fields, 1)
    if len(fields) < 2:
        raise ValueError("fields are missing")
    code = _number(fields[0], 2)
    said, notes = _counted(fields[1:], 2)
    if len(notes) % 4 or not _KINDS.issuperset(notes[::4]):
        raise ValueError("notes are not told apart")
    for text in said[1::2]:
        _expect_harmless(text)
    printed = [(bool(_number(n, 1)), text) for n, text in zip(said[::2], said[1::2], strict=True)]
    rows = zip(notes[::4], notes[1::4], notes[2::4], notes[3::4], strict=True)
    return Entry(key, code, printed, list(rows))


def _checksum(body: bytes) -> bytes:
    return b"%08x" % crc32(body)


def _counted(fields: list[str], width: int) -> tuple[list[str], list[str]]:
    """Return the fields of as many rows as the first field says, and the fields after them."""
    end = 1 + width * _number(fields[0], len(fields))
    if end > len(fields):
        raise ValueError("fields are missing")
    return fields[1:end], fields[end:]


def _number(word: str, most: int) -> int:
    """Return the number that ``word`` spells, without signs, blanks or leading zeros."""
    number = int(word) if len(word) < 10 else -1
    if not 0 <= number <= most or str(number) != word:
        raise ValueError("is no such number")
    return number


def _without_links(text: str) -> str:
    """Return ``text`` without its hyperlinks, which lead to the documentation."""
    kept, *parts = text.split("\x1b]8;;")
    for part in parts:
        url, end, rest = part.partition("\x1b\\")
        if not end or not url.isprintable() or (url and not url.startswith(DOCUMENTATION)):
            raise ValueError("links to somewhere else")
        kept += rest
    return kept


def _expect_harmless(text: str) -> None:
    """Return if a terminal obeys nothing in ``text`` but lines, tabs, colours and our links."""
    plain, *coloured = _without_links(text).split("\x1b[")
    parts = [plain]
    for part in coloured:
        colour, end, rest = part.partition("m")
        if not end or colour.strip("0123456789;"):
            raise ValueError("controls a terminal")
        parts.append(rest)
    if not all(part.replace("\n", "").replace("\t", "").isprintable() for part in parts):
        raise ValueError("holds what is not to be printed")
