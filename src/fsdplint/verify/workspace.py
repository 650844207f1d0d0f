"""A temporary folder of one verification, which the next one removes if this one is killed.

Its lock is held as long as the process that made it lives. A folder is removed only if it is this
user's, holds such a lock, and nobody has it: the system frees it however a process ends.
"""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fsdplint.verify import descent
from fsdplint.verify.request import REQUEST_VARIABLE

_PREFIX = "fsdplint-"
_LOCK = "fsdplint.lock"
"""It names the machine: where machines share a disk, a lock may be known to its own alone."""


@contextmanager
def workspace() -> Iterator[Path]:
    """Gives a folder that goes at the end; removes first what killed runs have left."""
    remove_leftovers()
    folder, lock = _made()
    try:
        yield folder.resolve()
    finally:
        _remove(folder)
        os.close(lock)


def remove_leftovers() -> int:
    """Removes the folders of runs that are no more, and ends their processes; returns how many
    there were."""
    return sum(map(_removed, Path(tempfile.gettempdir()).glob(f"{_PREFIX}*")))


def _made() -> tuple[Path, int]:
    """Makes a folder and locks it; both anew where another process took it for a leftover before
    it was locked."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        lock = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        os.write(lock, platform.node().encode())
        with suppress(OSError):  # no locks here, so that nobody takes it for a leftover
            fcntl.flock(lock, fcntl.LOCK_EX)
        if os.fstat(lock).st_nlink:
            return folder, lock
        os.close(lock)


def _removed(folder: Path) -> bool:
    """Removes a folder whose run is no more; says whether it was one."""
    with suppress(OSError):
        if not _is_own(folder.lstat()):
            return False
        lock = os.open(folder / _LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(lock).st_nlink and os.read(lock, 1000) == platform.node().encode():
                descent.end_marked(f"{REQUEST_VARIABLE}={folder.resolve()}")
                _remove(folder)
                return True
        finally:
            os.close(lock)
    return False


def _is_own(found: os.stat_result) -> bool:
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _remove(folder: Path) -> None:
    """Removes a folder, its lock last: what cannot be removed now can be by the next run."""
    with suppress(OSError):
        for entry in folder.iterdir():
            if entry.name != _LOCK:
                _remove_entry(entry)
        (folder / _LOCK).unlink()
        folder.rmdir()


def _remove_entry(entry: Path) -> None:
    if entry.is_symlink() or not entry.is_dir():
        entry.unlink()
        return
    try:
        shutil.rmtree(entry)
    except PermissionError:
        _open(entry)
        shutil.rmtree(entry)


def _open(folder: Path) -> None:
    """Lets this user change a folder and those in it, which the script may have forbidden."""
    folder.chmod(stat.S_IRWXU)
    for here, folders, _ in os.walk(folder):
        for inner in (Path(here, name) for name in folders):
            if not inner.is_symlink():
                inner.chmod(stat.S_IRWXU)
