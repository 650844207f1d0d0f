"""The disk as a check sees it, and notes of what it saw there.

A check reads the disk through these functions alone. So its result follows from the notes, which
record what each look showed: a run whose notes are still true would end the same way.

Imported by runs that last no longer than Python takes to start: nothing but `os` comes with it.
"""

from __future__ import annotations

import os
import time
from stat import S_IFDIR, S_IFMT, S_IFREG

TYPE_CHECKING = False  # as in `typing`, which takes longer to import than all of this
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Final

    Path = str | os.PathLike[str]

# The kinds of a note.
KIND: Final = "kind"
NAMES: Final = "names"
CONTENT: Final = "content"
REAL: Final = "real"
INSTALLED: Final = "installed"

# A file that was written so shortly before a run may be written again without a new time, since
# file systems count in steps of up to two seconds.
_STEP = 2_000_000_000  # nanoseconds
# What tools leave in folders, and what no look at them depends on.
_LITTER = frozenset({"__pycache__", ".git", ".mypy_cache", ".pytest_cache", ".ruff_cache"})
_SUFFIXES = (
    *(".py", ".pyi", ".ipynb", ".yaml", ".yml", ".json"),
    *(".sh", ".bash", ".slurm", ".sbatch", ".job", ".pbs", ".mk", ".Dockerfile"),
)
_PREFIXES = ("Makefile", "makefile", "GNUmakefile", "Dockerfile")
# For what becomes a pipe after it was looked at, and for files of /proc that wait as pipes do.
_WITHOUT_WAITING = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
MOST: Final = 50_000_000
"""Bytes of a file above which none is read."""
_PIECE = 1 << 20  # bytes


class Notes:
    """What was seen, each by its kind and path as a signature and a digest.

    Attributes:
        seen: a signature is what `stat` says of an unchanged file or folder, "" where that
            may not be enough; the digest is what was seen, "" where that was not read.
        began: when the run began, in nanoseconds since the epoch.
        repeatable: whether the same run would see the same, which it may not after a refusal.
    """

    __slots__ = ("began", "repeatable", "seen")

    def __init__(self) -> None:
        self.seen: dict[tuple[str, str], tuple[str, str]] = {}
        self.began = time.time_ns()
        self.repeatable = True

    def __enter__(self) -> Notes:
        global _notes
        _notes = self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        global _notes
        _notes = None


# One run at a time is recorded; it may continue in another thread.
_notes: Notes | None = None


def unrepeatable() -> None:
    """Note that the run may end otherwise another time."""
    if _notes is not None:
        _notes.repeatable = False


def is_file(path: Path) -> bool:
    """Return whether a file is at ``path``, or a link to one."""
    return _kind(path) == S_IFREG


def is_folder(path: Path) -> bool:
    """Return whether a folder is at ``path``, or a link to one."""
    return _kind(path) == S_IFDIR


def exists(path: Path) -> bool:
    """Return whether anything is at ``path``, though it may be a link that leads nowhere."""
    return _kind(path) != 0 or _is_broken_link(path)


def kind(path: Path) -> int:
    """Return the type of what is at ``path``, as in ``st_mode``, and 0 if that is nothing."""
    return _kind(path)


def _kind(path: Path) -> int:
    found = seen_kind(path)
    if _notes is not None:
        _notes.seen[KIND, os.fspath(path)] = ("", str(found))
    return found


def seen_kind(path: Path) -> int:
    """Return what `kind` does, without a note."""
    try:
        return S_IFMT(os.stat(path).st_mode)
    except (OSError, ValueError):  # ValueError: no file can have that name
        return 0


def _is_broken_link(path: Path) -> bool:
    found = os.path.lexists(path)
    if found:
        unrepeatable()
    return found


def real(path: Path) -> str:
    """Return the path without symbolic links."""
    found = os.path.realpath(path)
    if _notes is not None:
        _notes.seen[REAL, os.fspath(path)] = ("", found)
    return found


def entries(folder: str) -> list[os.DirEntry[str]]:
    """Return what is in ``folder``, by name.

    Raises:
        OSError: it cannot be looked into.
    """
    if _notes is None:
        return _entries(folder)
    try:
        before = signature(os.stat(folder), _notes.began)
        found = _entries(folder)
    except OSError:
        _notes.repeatable = False
        raise
    _notes.seen[NAMES, folder] = (before, _digest_of_names(found))
    return found


def _entries(folder: str) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as found:
        return sorted(found, key=lambda entry: entry.name)


def names_digest(folder: str) -> str:
    """Return the digest of a note on `entries`."""
    return _digest_of_names(_entries(folder))


def _digest_of_names(entries: list[os.DirEntry[str]]) -> str:
    """Return a digest of the names that matter: folders, files to check, and which are links."""
    names = []
    for entry in entries:
        if entry.name not in _LITTER:
            found = types(entry)
            named = entry.name.endswith(_SUFFIXES) or entry.name.startswith(_PREFIXES)
            if found[0] or named:
                names.append("".join(map("01".__getitem__, found)) + entry.name)
    return digest(os.fsencode("\0".join(names)))


def installed(folder: str) -> str:
    """Return a digest of which releases of packages are installed in ``folder``."""
    with os.scandir(folder) as found:
        names = sorted(e.name for e in found if e.name.endswith((".dist-info", ".egg-info")))
    return digest(os.fsencode("\0".join(names)))


def types(entry: os.DirEntry[str]) -> tuple[bool, bool, bool]:
    """Return whether it is a folder, a file, and a link."""
    try:
        return entry.is_dir(), entry.is_file(), entry.is_symlink()
    except OSError:  # a link that leads to itself
        return False, False, True


def status(path: Path) -> os.stat_result:
    """Return the status of the file at ``path``; a call of `content` may follow.

    Raises:
        OSError: it has none.
    """
    try:
        found = os.stat(path)
    except OSError:
        unrepeatable()
        raise
    if _notes is not None:
        _notes.seen[CONTENT, os.fspath(path)] = (signature(found, _notes.began), "")
    return found


def content(path: Path, most: int = MOST) -> bytes:
    """Return the content of the file at ``path``, up to one byte more than ``most``.

    Raises:
        OSError: it cannot be read.
    """
    try:
        data = read(path, most)
    except OSError:
        unrepeatable()
        raise
    if _notes is not None:
        before, _ = _notes.seen[CONTENT, os.fspath(path)]
        _notes.seen[CONTENT, os.fspath(path)] = (before, digest(data))
    return data


def read(path: Path, most: int = MOST) -> bytes:
    """Return what `content` does, without a note.

    The size of a file does not bound what it holds: that of many in /proc is 0.

    Raises:
        OSError: it cannot be read.
    """
    data = bytearray()
    with open(os.open(path, os.O_RDONLY | _WITHOUT_WAITING), "rb", 0) as file:
        while part := file.read(min(_PIECE, most + 1 - len(data))):
            data += part
    return bytes(data)


def signature(status: os.stat_result, began: int) -> str:
    """Return what shows that a file or folder has changed, "" if its time is too recent to.

    Args:
        began: when the run began that looks at it.
    """
    if max(status.st_mtime_ns, status.st_ctime_ns) > began - _STEP:
        return ""
    return (
        f"{status.st_mode:x} {status.st_ino:x} {status.st_size:x} "
        f"{status.st_mtime_ns:x} {status.st_ctime_ns:x}"
    )


def digest(data: bytes) -> str:
    """Return a hash of ``data`` as 32 hexadecimal digits."""
    from hashlib import blake2b

    return blake2b(data, digest_size=16).hexdigest()
