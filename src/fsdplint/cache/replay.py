"""Print a cached report if the disk is unchanged."""

from __future__ import annotations

import os
import sys
import time
from stat import S_ISREG
from zlib import adler32, crc32

from fsdplint import __version__
from fsdplint.cache.folder import place, store, stored
from fsdplint.cache.report_entry import Entry, decoded, encoded
from fsdplint.files import disk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    Note = tuple[str, str, str, str]

COMMAND, OFF, OFF_VARIABLE = "check", "--no-cache", "FSDPLINT_NO_CACHE"
# Of the environment: what reports are coloured, linked and formatted by, what Python decodes and
# finds modules by, and what asks click for completions.
_VARIABLES = (
    "CLICOLOR_FORCE",
    "DOMTERM",
    "FORCE_COLOR",
    "FORCE_HYPERLINK",
    "FSDPLINT_DEBUG",
    "FSDPLINT_OUTPUT_FORMAT",
    "KONSOLE_VERSION",
    "NO_COLOR",
    "PYTHONPATH",
    "PYTHONUTF8",
    "TERM",
    "TERM_PROGRAM",
    "VTE_VERSION",
    "WT_SESSION",
    "_FSDPLINT_COMPLETE",
)


def key_of(arguments: Sequence[str]) -> tuple[str, ...] | None:
    """Return all that a run depends on besides the disk; None if it is not to be cached."""
    if arguments[:1] != [COMMAND] or OFF in arguments or os.environ.get(OFF_VARIABLE):
        return None
    if sys.stdout is None or sys.stderr is None or not place():
        return None
    try:
        here = os.getcwd()
    except OSError:  # it is gone
        return None
    return (
        __version__,
        os.path.dirname(os.path.dirname(disk.__file__)),
        sys.version,
        sys.prefix,
        sys.getfilesystemencoding(),
        *(os.environ.get(name, "") for name in _VARIABLES),
        f"{sys.stdout.isatty():d}{sys.stderr.isatty():d}",
        here,
        *arguments,
    )


def name_of(key: Sequence[str]) -> str:
    """Return the name of the entry with ``key``; different keys may share a name."""
    data = "\0".join(key).encode("utf-8", "surrogateescape")
    return f"{crc32(data):08x}{adler32(data):08x}"


def replay(arguments: Sequence[str]) -> int | None:
    """Print what a run with ``arguments`` printed, if it is cached, and return its exit code.

    Raises:
        OSError: it cannot be printed.
    """
    try:
        key = key_of(arguments)
        data = stored(place(), name_of(key)) if key is not None else None
        if key is None or data is None:
            return None
        entry = decoded(data)
    except ValueError:  # a broken entry, or arguments that are no text
        return None
    began = time.time_ns()
    if entry.key != key or (notes := _still_true(entry.notes, began)) is None:
        return None
    if notes != entry.notes:
        store(place(), name_of(key), encoded(Entry(key, entry.code, entry.said, notes)))
    for aside, text in entry.said:
        stream = sys.stderr if aside else sys.stdout
        stream.write(text)
        stream.flush()
    return entry.code


def _still_true(notes: Sequence[Note], began: int) -> tuple[Note, ...] | None:
    """Return ``notes`` with current signatures, or None if the disk has changed."""
    fresh = []
    for note in notes:
        kind, path, signature, digest = note
        if kind == disk.KIND:
            if str(disk.seen_kind(path)) != digest:
                return None
        elif kind == disk.REAL:
            if os.path.realpath(path) != digest:
                return None
        else:
            try:
                status = os.stat(path)
                now = disk.signature(status, began)
                if (not now or now != signature) and _digest(kind, path, status) != digest:
                    return None
            except OSError:
                return None
            note = (kind, path, now, digest)
        fresh.append(note)
    return tuple(fresh)


def _digest(kind: str, path: str, status: os.stat_result) -> str | None:
    """Return the current digest for a note of ``kind`` on ``path``, None if there is none."""
    if kind == disk.NAMES:
        return disk.names_digest(path)
    if kind == disk.INSTALLED:
        return disk.installed(path)
    # What is no file is not read; a note says so by a digest that is empty.
    return disk.digest(disk.read(path)) if S_ISREG(status.st_mode) else None
