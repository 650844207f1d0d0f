"""A temporary folder of one verification, and the scratch copy of the working directory in it.

The folder's lock is held as long as the process that made it lives. The next verification removes
the folder if this one is killed: only if it is this user's, holds such a lock, and nobody has it,
since the system frees the lock however a process ends.
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
from itertools import islice
from pathlib import Path

from fsdplint.verify.processes import end_marked
from fsdplint.verify.request import REQUEST_VARIABLE

_PREFIX = "fsdplint-"
_LOCK = "fsdplint.lock"
"""It names the machine: where machines share a disk, a lock may be known to its own alone."""
LINKED_FROM = 16 * 2**20
"""Bytes from which a file is linked to, not copied; whoever writes to it takes the link away."""
MOST_FILES = 50_000
COPIED = 2**31
"""Bytes of small files that are copied; the rest is linked to as well."""
_LEFT_OUT = {
    ".git",
    ".hg",
    ".svn",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".tox",
    ".venv",
    "__pycache__",
    "node_modules",
    "venv",
    "wandb",
}


@contextmanager
def workspace() -> Iterator[Path]:
    """Yield a temporary folder; first remove what killed runs have left."""
    remove_leftovers()
    folder, lock = _made()
    try:
        yield folder.resolve()
    finally:
        _remove(folder)
        os.close(lock)


def remove_leftovers() -> int:
    """Remove the folders of killed runs, end their processes, and return how many there were."""
    return sum(map(_removed, Path(tempfile.gettempdir()).glob(f"{_PREFIX}*")))


def _made() -> tuple[Path, int]:
    """Make a folder and lock it; both anew where another process took it for a leftover before
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
    """Remove a folder whose run is no more; true if it was one."""
    with suppress(OSError):
        if not _is_own(folder.lstat()):
            return False
        lock = os.open(folder / _LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(lock).st_nlink and os.read(lock, 1000) == platform.node().encode():
                end_marked(f"{REQUEST_VARIABLE}={folder.resolve()}")
                _remove(folder)
                return True
        finally:
            os.close(lock)
    return False


def _is_own(found: os.stat_result) -> bool:
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _remove(folder: Path) -> None:
    """Remove a folder, its lock last: what cannot be removed now can be by the next run."""
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
    """Let this user change a folder and those in it, which the script may have forbidden."""
    folder.chmod(stat.S_IRWXU)
    for here, folders, _ in os.walk(folder):
        for inner in (Path(here, name) for name in folders):
            if not inner.is_symlink():
                inner.chmod(stat.S_IRWXU)


class VerifyError(Exception):
    """Nothing was run; the message is one sentence for the user."""


def stage(source: Path, target: Path) -> None:
    """Copy `source` to `target`: small files as they are, large ones and folders' links as links.

    Raises:
        VerifyError: there are more than `MOST_FILES` files, or one cannot be read.
    """
    files = list(islice(_files(source, target), MOST_FILES + 1))
    if len(files) > MOST_FILES:  # before anything is written: it may be a home folder
        raise VerifyError(
            f"{source} has more than {MOST_FILES:,} files and folders; "
            "verify copies the working directory, so run it in the project's own folder"
        )
    target.mkdir(parents=True)
    room = COPIED
    try:
        for path in files:
            with suppress(FileNotFoundError):  # gone since it was listed
                room -= _place(source, target, path, room)
    except OSError as error:
        raise VerifyError(f"cannot copy {error.filename}: {error.strerror}") from None


def preserve(root: Path, target: Path) -> None:
    """Copy a scratch copy to `target` as it is, unless that is there; links within it lead to the
    copies.

    Raises:
        VerifyError: a file cannot be read, or there is no room for it.
    """
    try:
        target.mkdir()
    except FileExistsError:
        return
    try:
        _copy_all(root, target)
    except OSError as error:
        raise VerifyError(f"cannot copy {error.filename}: {error.strerror}") from None


def _copy_all(root: Path, target: Path) -> None:
    for folder, folders, names in os.walk(root):
        here = target / Path(folder).relative_to(root)
        for name in [*folders, *names]:
            file, copy = Path(folder, name), here / name
            if file.is_symlink():
                leads = file.readlink()
                inside = leads.is_relative_to(root)
                copy.symlink_to(target / leads.relative_to(root) if inside else leads)
            elif file.is_dir():
                copy.mkdir()
            elif file.is_file():
                shutil.copy2(file, copy)


def surround(source: Path, target: Path) -> None:
    """Link what lies beside `source`, and beside its parent, to the same places seen from the
    copy, so that ``../data`` is found there; a folder that may not be read is left out."""
    for here, there in ((source, target), (source.parent, target.parent)):
        with suppress(OSError):
            for sibling in here.parent.iterdir():
                link = there.parent / sibling.name
                if sibling != here and not link.exists():
                    link.symlink_to(sibling)


def _files(source: Path, target: Path) -> Iterator[str]:
    """Yield folders, files and links to be placed, relative to the source, outer ones first."""
    inside = target.resolve()
    for folder, folders, names in os.walk(source):
        here = Path(folder)
        yield from (os.path.relpath(here / name, source) for name in names)
        for name in list(folders):
            link = (here / name).is_symlink()
            if link or _is_left_out(here / name) or (here / name).resolve() == inside:
                folders.remove(name)
            if link or name in folders:
                yield os.path.relpath(here / name, source)


def _is_left_out(folder: Path) -> bool:
    return folder.name in _LEFT_OUT or (folder / "pyvenv.cfg").exists()


def _place(source: Path, target: Path, path: str, room: int) -> int:
    """Put one of the source's entries into the copy; return how many bytes were copied."""
    file, copy = source / path, target / path
    if file.is_symlink():
        if file.is_file() or file.is_dir():
            copy.symlink_to(_leads_to(file.resolve(), source.resolve(), target))
    elif file.is_dir():
        copy.mkdir()
    elif file.is_file():  # not a pipe, socket or device
        size = file.stat().st_size
        if size < min(LINKED_FROM, room):
            shutil.copy2(file, copy)
            return size
        copy.symlink_to(file.absolute())
    return 0


def _leads_to(file: Path, source: Path, target: Path) -> Path:
    """Return where a copied link leads: into the copy, if what it led to has been copied too."""
    if not file.is_relative_to(source):
        return file
    inside = file.relative_to(source)
    if any(_is_left_out(source / folder) for folder in (inside, *inside.parents)):
        return file
    return target / inside
