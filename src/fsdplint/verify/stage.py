"""A scratch copy of the working directory, so that what the script writes touches nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

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


class StageError(Exception):
    """The working directory cannot be copied; the message is one sentence for the user."""


def stage(source: Path, target: Path) -> None:
    """Copies `source` to `target`: small files as they are, large ones and folders' links as links.

    Raises:
        StageError: there are more than `MOST_FILES` files, or one cannot be read.
    """
    files = list(islice(_files(source, target), MOST_FILES + 1))
    if len(files) > MOST_FILES:  # before anything is written: it may be a home folder
        raise StageError(
            f"{source} holds more than {MOST_FILES:,} files and folders; "
            "verify copies its working directory, so start it in the project's own folder"
        )
    target.mkdir(parents=True)
    room = COPIED
    try:
        for path in files:
            with suppress(FileNotFoundError):  # gone since it was listed
                room -= _place(source, target, path, room)
    except OSError as error:
        raise StageError(f"cannot copy {error.filename}: {error.strerror}") from None


def surround(source: Path, target: Path) -> None:
    """Links what lies beside `source`, and beside its parent, to the same places seen from the
    copy, so that ``../data`` is found there; a folder that may not be read is left out."""
    for here, there in ((source, target), (source.parent, target.parent)):
        with suppress(OSError):
            for sibling in here.parent.iterdir():
                link = there.parent / sibling.name
                if sibling != here and not link.exists():
                    link.symlink_to(sibling)


def _files(source: Path, target: Path) -> Iterator[str]:
    """Yields folders, files and links to be placed, relative to the source, outer ones first."""
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
    """Puts one of the source's entries into the copy; returns how many bytes were copied."""
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
    """Returns where a copied link leads: into the copy, if what it led to has been copied too."""
    if not file.is_relative_to(source):
        return file
    inside = file.relative_to(source)
    if any(_is_left_out(source / folder) for folder in (inside, *inside.parents)):
        return file
    return target / inside
