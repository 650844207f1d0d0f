"""The cached IR of the files of a project, for runs after a change.

A cached report is of no use once a file has changed, but the IR of the other files is, and making
it takes a third of a run. The key of each piece is what it was made from, and the code that made
it, so it is valid for every run that looks it up.
"""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import fsdplint
from fsdplint.cache.folder import LOWERED, place, store, stored
from fsdplint.files import disk

if TYPE_CHECKING:
    from fsdplint.engine.frontend.ir_cache import IRCache

_HEAD = b"fsdplint ir 1 "  # raised when what follows is laid out otherwise
_CHECKSUM = 8  # hexadecimal digits
_MAX_ROWS = 100_000_000  # characters of rows, ten times what a large project has
_MAX_IN_MEMORY = 30_000_000  # characters of rows that many runs of one process leave
_QUICK = 1  # level of compression


class Packs:
    """The cached IR of projects, an entry for each.

    Attributes:
        opened: those that this run has come to, by the name of the entry.
        on_disk: whether other runs left some and will use these; else they are this run's alone,
            which lowers a file again for each fix that it tries.
    """

    def __init__(self, *, on_disk: bool = True) -> None:
        self.opened: dict[str, IRCache] = {}
        self.on_disk = on_disk

    def of(self, root: Path) -> IRCache:
        """Return the cached IR of the project at ``root``."""
        name = self._name(root)
        if name not in self.opened:
            from fsdplint.engine.frontend.ir_cache import IRCache  # and with it the engine

            data = stored(place(), name, LOWERED) if self.on_disk else None
            self.opened[name] = IRCache({} if data is None else unpacked(data))
        return self.opened[name]

    def _name(self, root: Path) -> str:
        if not self.on_disk:
            return str(root)
        return disk.digest(f"{_maker()} {root}".encode("utf-8", "surrogateescape"))

    def begin_run(self) -> None:
        """Forget what the last run in this process did not use, if there is much of it."""
        for kept in self.opened.values():
            kept.begin_run(_MAX_IN_MEMORY)

    def save(self) -> None:
        """Store what this run lowered and what earlier runs left, as far as there is room."""
        for name, kept in self.opened.items():
            if self.on_disk and kept.has_new:
                store(place(), name, packed(kept), LOWERED)


def packed(kept: IRCache) -> bytes:
    """Return the rows of ``kept`` as bytes, those that this run used first."""
    press = zlib.compressobj(_QUICK)
    parts = [press.compress(f"{row}\n".encode("ascii")) for row in _fitting(kept)]
    body = b"".join([*parts, press.flush()])
    return _HEAD + b"%08x" % zlib.crc32(body) + body


def _fitting(kept: IRCache) -> Iterator[str]:
    room = _MAX_ROWS
    for key, row in {**kept.used, **kept.earlier}.items():
        room -= len(row)
        if room > 0:
            yield f"{key} {row}"


def unpacked(data: bytes) -> Mapping[str, str]:
    """Return the rows that `packed` encoded as ``data``; none if ``data`` is anything else."""
    start = len(_HEAD) + _CHECKSUM
    body = data[start:]
    if data[:start] != _HEAD + b"%08x" % zlib.crc32(body):
        return {}
    try:
        text = zlib.decompressobj().decompress(body, 2 * _MAX_ROWS).decode("ascii")
    except (zlib.error, ValueError):
        return {}
    rows = (line.partition(" ") for line in text.splitlines())
    return {key: row for key, _, row in rows}


def _maker() -> str:
    """Return what lowering depends on: our code, LibCST, and Python's own parser."""
    folder = parser_folder()
    code = [disk.digest(disk.read(path)) for path in lowering_code()]
    return " ".join([sys.version, disk.installed(folder) if folder else "", *code])


def lowering_code() -> list[Path]:
    """Return our files that lowering depends on, and a few more."""
    package = Path(fsdplint.__file__).parent
    folders = ("files", "engine", "engine/frontend", "engine/project")
    return sorted(path for folder in folders for path in (package / folder).glob("*.py"))


def parser_folder() -> str:
    """Return the folder that LibCST is installed in, without importing it; "" if there is none."""
    parser = find_spec("libcst")
    return os.path.dirname(os.path.dirname(parser.origin)) if parser and parser.origin else ""
