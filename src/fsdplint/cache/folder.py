"""The folder of the cache: where it is, and how to read, write and remove them.

Reading and writing never fail: without a folder to use there is no cache.
"""

from __future__ import annotations

import os
import sys
import time
from stat import S_ISREG

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

# What a file of ours ends in: a run, the IR of a project, and what is not written to its end.
RUN, LOWERED, _UNFINISHED = ".run", ".ir", ".part"
_TAG, _IGNORE = "CACHEDIR.TAG", ".gitignore"
# https://bford.info/cachedir
_TAG_TEXT = b"Signature: 8a477f597d28d172789f06886806bc55\n# Written by fsdplint.\n"
_MAX_ENTRIES = 200
_MAX_TOTAL, _MAX_ENTRY = 100_000_000, 20_000_000  # bytes
_MAX_AGE, _MAX_UNFINISHED_AGE = 30 * 86_400, 3_600  # seconds
_RUN_DIGITS, _LOWERED_DIGITS = 16, 32  # hexadecimal, of the names of entries
_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


class NotOursError(Exception):
    """A folder with files that fsdplint did not write; the message is one line."""


def place() -> str:
    """Return the absolute path of the folder, "" if there is nowhere for it."""
    given = os.environ.get("FSDPLINT_CACHE_DIR")
    if given:
        return os.path.abspath(given)
    caches = os.environ.get("XDG_CACHE_HOME", "")
    if sys.platform == "win32":
        caches = os.environ.get("LOCALAPPDATA", "")
    elif not os.path.isabs(caches):
        home = os.path.expanduser("~")
        caches = os.path.join(home, "Library/Caches" if sys.platform == "darwin" else ".cache")
    return os.path.join(caches, "fsdplint") if os.path.isabs(caches) else ""


def stored(folder: str, name: str, suffix: str = RUN) -> bytes | None:
    """Return what was stored as ``name``; None if it cannot be read or is not to be trusted."""
    try:
        # Not waiting, should it be a pipe.
        flags = os.O_RDONLY | _NO_LINK | getattr(os, "O_NONBLOCK", 0)
        descriptor = os.open(os.path.join(folder, name + suffix), flags)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not S_ISREG(status.st_mode) or status.st_size > _MAX_ENTRY or not _is_ours(status):
            return None
        with open(descriptor, "rb", 0, closefd=False) as file:
            return file.read(_MAX_ENTRY)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def store(folder: str, name: str, data: bytes, suffix: str = RUN) -> None:
    """Write ``data`` as ``name`` in one step, if that can be done, and remove what is old."""
    if len(data) > _MAX_ENTRY:
        return
    try:
        if _prepared(folder):
            _replace(os.path.join(folder, name + suffix), data)
            _prune(folder)
    except OSError:  # full, read-only, or not a folder
        return


def clean(folder: str) -> tuple[int, int] | None:
    """Remove the folder with all that fsdplint wrote into it, if it is there.

    What a link leads to is emptied, and stays as the link does. No link in it is followed.

    Returns:
        How many entries and bytes it had.

    Raises:
        NotOursError: it has no tag of ours, or files of others, which stay.
        OSError: something of it cannot be removed.
    """
    if not os.path.lexists(folder):
        return None
    if not _is_tagged(folder):
        raise NotOursError("not removed: it has no CACHEDIR.TAG of fsdplint")
    entries = list(_entries(folder))
    for path, _ in entries:
        os.unlink(path)
    for name in (_IGNORE, _TAG):
        if os.path.lexists(path := os.path.join(folder, name)):
            os.unlink(path)
    left = os.listdir(folder)
    if left:
        raise NotOursError(
            f"not removed: it also contains {min(left)}, which fsdplint did not write"
        )
    if not os.path.islink(folder):
        os.rmdir(folder)
    return len(entries), sum(status.st_size for _, status in entries)


def _is_ours(status: os.stat_result) -> bool:
    """Return whether this user owns the file; another user could plant any report."""
    return sys.platform == "win32" or status.st_uid == os.geteuid()


def _prepared(folder: str) -> bool:
    """Return whether entries may be put into ``folder``, which is created and tagged if needed.

    A folder with other files is not ours to tag: tools for backups leave out what is.
    """
    os.makedirs(folder, 0o700, exist_ok=True)
    if not _is_tagged(folder):
        if not all(map(_is_tag_to_be, os.listdir(folder))):
            return _is_tagged(folder)  # by another run in the meantime
        _replace(os.path.join(folder, _TAG), _TAG_TEXT)
        _replace(os.path.join(folder, _IGNORE), b"*\n")
    return True


def _is_tag_to_be(name: str) -> bool:
    """Return whether another run is writing the file as the tag of the folder."""
    return name.startswith(f"{_TAG}.") and name.endswith(_UNFINISHED)


def _is_tagged(folder: str) -> bool:
    try:
        with open(os.path.join(folder, _TAG), "rb") as file:
            return file.read(len(_TAG_TEXT) + 1) == _TAG_TEXT
    except OSError:
        return False


def _replace(path: str, data: bytes) -> None:
    """Make ``data`` the content of the file at ``path``.

    Not flushed to the disk, as a source file is: the checksum reveals a cut entry.
    """
    part = f"{path}.{os.getpid():x}{os.urandom(4).hex()}{_UNFINISHED}"
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINK, 0o600)
    try:
        with open(descriptor, "wb", 0) as file:
            if file.write(data) != len(data):
                raise OSError("was not written whole")
        os.replace(part, path)
    except BaseException:  # an interrupt too leaves nothing behind; it goes on from here
        os.unlink(part)
        raise


def _prune(folder: str) -> None:
    """Remove what is old, and the oldest of what is too much."""
    now, count, total = time.time(), 0, 0
    for path, status in sorted(_entries(folder), key=lambda entry: -entry[1].st_mtime):
        age = now - status.st_mtime
        count, total = count + 1, total + status.st_size
        unfinished = path.endswith(_UNFINISHED)
        if age > (_MAX_UNFINISHED_AGE if unfinished else _MAX_AGE) or (
            not unfinished and (count > _MAX_ENTRIES or total > _MAX_TOTAL)
        ):
            os.unlink(path)


def _entries(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as found:
        for entry in found:
            if _is_own(entry.name) and not entry.is_dir(follow_symlinks=False):
                yield entry.path, entry.stat(follow_symlinks=False)


def _is_own(name: str) -> bool:
    """Return whether only fsdplint names files so; other tools use .part as well."""
    written, _, token = name.removesuffix(_UNFINISHED).rpartition(".")
    if name.endswith(_UNFINISHED) and _is_number(token):
        return written in (_TAG, _IGNORE) or _is_entry(written)
    return _is_entry(name)


def _is_entry(name: str) -> bool:
    stem, dot, suffix = name.partition(".")
    digits = {RUN: _RUN_DIGITS, LOWERED: _LOWERED_DIGITS}.get(dot + suffix)
    return len(stem) == digits and _is_number(stem)


def _is_number(word: str) -> bool:
    return bool(word) and not word.strip("0123456789abcdef")
