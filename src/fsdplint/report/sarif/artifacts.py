"""Files as a SARIF reader opens them: their URIs, and regions in UTF-16 columns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from itertools import accumulate, chain, repeat
from pathlib import PurePosixPath
from urllib.parse import quote

import sarif_om as om

from fsdplint.files.file import SourceFile
from fsdplint.finding import Span

ROOT = "%SRCROOT%"
_CONTEXT_LINES = 2
_MAX_CONTEXT = 4_000  # characters; a notebook's line may hold a whole image

_BLOCK = 100
_FACTOR = 37
_MASK = (1 << 64) - 1
_LEAVING = pow(_FACTOR, _BLOCK, 1 << 64)
_END_OF_FILE = 65535
_LINE_FEED = 10
_BLANK = re.compile("[ \t]")
_LINE_END = re.compile("\r\n?")


class Artifact:
    """A file below ``root``; of a notebook, its JSON document."""

    def __init__(self, source: SourceFile, root: str) -> None:
        self.source = source
        self.file = source.document
        self.location = _location(source.path, root)

    @cached_property
    def hashes(self) -> list[str]:
        return line_hashes(self.source.encode())

    @cached_property
    def _ascii(self) -> bool:
        return self.file.text.isascii()

    def physical(self, span: Span, *, context: bool = False) -> om.PhysicalLocation:
        """Return where ``span`` is, with its text and, if asked for, the lines around it."""
        start, end = self.offsets(span)
        return om.PhysicalLocation(
            artifact_location=self.location,
            region=self.region(start, end, snippet=True),
            context_region=self._context(start, end) if context else None,
        )

    def line_hash(self, span: Span) -> str:
        """Return the hash by which GitHub knows the line of ``span``."""
        line, _ = self.file.position(self.offsets(span)[0])
        return self.hashes[line - 1]

    def offsets(self, span: Span) -> tuple[int, int]:
        """Return where ``span`` starts and ends in the file as it is stored."""
        return self.source.in_document(span.start, span.end)

    def region(self, start: int, end: int, *, snippet: bool = False) -> om.Region:
        """Return the region from one offset in the stored file to another."""
        start_line, start_column = self._position(start)
        end_line, end_column = self._position(end)
        text = self.file.text[start:end]
        return om.Region(
            start_line=start_line,
            start_column=start_column,
            end_line=end_line,
            end_column=end_column,
            snippet=om.ArtifactContent(text=text) if snippet else None,
        )

    def _position(self, offset: int) -> tuple[int, int]:
        line, column = self.file.position(offset)
        if self._ascii:
            return line, column
        before = self.file.text[offset - column + 1 : offset]
        return line, len(before.encode("utf-16-le")) // 2 + 1

    def _context(self, start: int, end: int) -> om.Region | None:
        """Return the lines around a region, unless they are no more than it, or too long."""
        first, _ = self.file.position(start)
        last, _ = self.file.position(end)
        begin = self.file.offset(max(1, first - _CONTEXT_LINES), 1)
        bottom = self.file.offset(last + _CONTEXT_LINES, 1)
        line, _ = self.file.position(bottom)
        finish = bottom + len(self.file.line(line))
        if (begin, finish) == (start, end) or finish - begin > _MAX_CONTEXT:
            return None
        return self.region(begin, finish, snippet=True)


class Artifacts:
    """The files of a run below ``root``, each read once."""

    def __init__(self, sources: Mapping[str, SourceFile], root: str) -> None:
        self.sources = sources
        self.root = root
        self.known: dict[str, Artifact] = {}

    def of(self, span: Span) -> Artifact:
        """Return the file that ``span`` is in."""
        if span.path not in self.known:
            self.known[span.path] = Artifact(self.sources[span.path], self.root)
        return self.known[span.path]

    def file(self, path: str) -> om.Location | None:
        """Return the location of the file at ``path``, None if it is not below the root."""
        if not path.startswith(f"{self.root.rstrip('/')}/"):
            return None
        physical = om.PhysicalLocation(artifact_location=_location(path, self.root))
        return om.Location(physical_location=physical)


def _location(path: str, root: str) -> om.ArtifactLocation:
    relative = PurePosixPath(path).relative_to(root).as_posix()
    # The URI of a name that is not UTF-8 has the name's bytes.
    uri = quote(relative, safe="/", errors="surrogateescape")
    return om.ArtifactLocation(uri=uri, uri_base_id=ROOT)


def line_hashes(data: bytes) -> list[str]:
    """Return the hash by which GitHub knows each line of a file, as ``hash:count``.

    ``count`` numbers equal hashes. The hash is that of `github/codeql-action`
    (``src/fingerprints.ts``), whose uploader warns of any other: a rolling hash, modulo 2**64, of a
    hundred UTF-16 code units from the start of a line, without blanks and with every line end as a
    line feed; 65535 represents the end of the file and zeros follow it. Like the uploader, this
    reads the file as UTF-8, whatever its encoding.
    """
    text = _BLANK.sub("", _LINE_END.sub("\n", data.decode("utf-8", "replace")))
    # Without an order in its name, the codec writes the machine's after a mark.
    units = [*memoryview(text.encode("utf-16")).cast("H")[1:], _END_OF_FILE]
    starts = [0, *(index + 1 for index, unit in enumerate(units) if unit == _LINE_FEED)]
    # The hash at a line's start is that of the window which ends a block later.
    padded = list(chain(units, repeat(0, _BLOCK)))
    leaving = chain(repeat(0, _BLOCK), padded)
    rolling = list(accumulate(zip(padded, leaving, strict=False), _roll, initial=0))
    seen: Counter[int] = Counter()
    hashes = []
    for start in starts:
        value = rolling[start + _BLOCK]
        seen[value] += 1
        hashes.append(f"{value:x}:{seen[value]}")
    return hashes


def _roll(value: int, units: tuple[int, int]) -> int:
    entering, leaving = units
    return (value * _FACTOR + entering - leaving * _LEAVING) & _MASK
