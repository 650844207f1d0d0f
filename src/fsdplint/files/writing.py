"""Replacing files on disk by their new content, wholly or not at all."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fsdplint.files.decoding import SourceError
from fsdplint.files.file import SourceFile

if sys.platform != "win32":
    import fcntl

# What is being written, beside its target; no suffix that Python, tests or this tool look for.
_PREFIX, _SUFFIX = ".fsdplint-", ".unfinished"

# Neither following a link nor waiting at a pipe that somebody put there.
_AS_IT_IS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)

Change = tuple[SourceFile, SourceFile]
"""A file as it was read, and as it becomes."""


def write(*changes: Change) -> None:
    """Make ``changes`` on disk: all, or none where one cannot be made.

    A file keeps its mode, its owner and its extended attributes; what a symbolic link leads to is
    replaced, and the link stays.

    Raises:
        SourceError: a file has changed since it was read, is read-only, or cannot be written.
    """
    with ExitStack() as stack:
        # What takes room on the disk, and is likely to be refused, comes before the first step.
        steps = [stack.enter_context(_prepared(*change)) for change in changes]
        for made, step in enumerate(steps):
            try:
                step()
            except BaseException:  # an interrupt too
                _take_back(changes[:made])
                raise


def _take_back(changes: Sequence[Change]) -> None:
    for before, after in changes:
        try:
            write((after, before))
        except SourceError as error:
            reason = f"changed, but other files were not; restoring it failed ({error.reason})"
            raise SourceError(before.path, reason) from error


@contextmanager
def _prepared(before: SourceFile, after: SourceFile) -> Iterator[Callable[[], None]]:
    """Give the step that changes a file."""
    target = Path(os.path.realpath(before.path))
    with ExitStack() as stack:
        with _naming(before):
            if not _is_writable(target):
                raise SourceError(before.path, "not written: the file is read-only")
            put = stack.enter_context(_staged(target, after.encode()))

        def step() -> None:
            with _naming(before):
                if target.read_bytes() != before.encode():
                    raise SourceError(
                        before.path, "not written: the file changed after it was read"
                    )
                put()

        yield step


@contextmanager
def _naming(source: SourceFile) -> Iterator[None]:
    """Name the file that the system refuses to write."""
    try:
        yield
    except OSError as error:
        raise SourceError(source.path, f"cannot be written: {error.strerror}") from error


def replace(target: Path, data: bytes) -> None:
    """Make ``data`` the content of ``target`` in one step.

    A process that is killed on the way leaves ``target`` as it was and at most one hidden file,
    which the next one that writes into the directory removes.

    Raises:
        OSError: it cannot be done, and ``target`` is as it was.
    """
    with _staged(target, data) as step:
        step()


@contextmanager
def _staged(target: Path, data: bytes) -> Iterator[Callable[[], None]]:
    """Write ``data`` beside ``target``, and give the step that puts it in its place."""
    _remove_leftovers(target.parent)
    descriptor, name = _temporary(target.parent)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor, not a path
            file.write(data)
            file.flush()
            os.fsync(descriptor)
            _keep_attributes(target, name)
            yield lambda: os.replace(name, target)  # noqa: PTH105 - a name that is a str
    finally:  # after an interrupt too nothing is left behind
        with contextlib.suppress(OSError):
            Path(name).unlink()


def _is_writable(target: Path) -> bool:
    """Return whether the file itself may be written, whatever its directory or root allow."""
    anyone = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH
    return bool(target.stat().st_mode & anyone) and os.access(target, os.W_OK)


def _temporary(directory: Path) -> tuple[int, str]:
    """Return the descriptor and the name of a new file, locked while it is open."""
    while True:
        descriptor, name = tempfile.mkstemp(_SUFFIX, _PREFIX, directory)
        if _lock(descriptor, wait=True) and Path(name).exists():
            return descriptor, name
        os.close(descriptor)  # another process took it for a leftover before it was locked


def _remove_leftovers(directory: Path) -> None:
    """Remove the files that killed processes left, which nobody has locked any more."""
    for path in directory.glob(f"{_PREFIX}*{_SUFFIX}"):
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | _AS_IT_IS)
            try:
                if _lock(descriptor, wait=False):
                    path.unlink()
            finally:
                os.close(descriptor)


def _lock(descriptor: int, wait: bool) -> bool:
    """Return whether the lock was acquired. Without such locks, leftovers stay."""
    if sys.platform == "win32":
        return wait
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:  # another's, or a file system without locks
        return wait
    return True


def _keep_attributes(target: Path, name: str) -> None:
    """Give the file called ``name`` the owner, mode and extended attributes of ``target``."""
    if not target.exists():
        Path(name).chmod(0o666 & ~_umask())
        return
    owner = _owner(target)
    if owner != _owner(Path(name)):
        os.chown(name, *owner)
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # a file system without them
            for attribute in os.listxattr(target):
                os.setxattr(name, attribute, os.getxattr(target, attribute))
    Path(name).chmod(stat.S_IMODE(target.stat().st_mode))


def _owner(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_uid, found.st_gid


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
