"""A scratch copy of the working directory, so that what the script writes touches nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

LINKED_FROM = 16 * 2**20
"""Bytes from which a file is linked to, not copied; whoever writes to it takes the link away."""
MOST_FILES = 50_000
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
    target.mkdir(parents=True)
    try:
        for count, (file, copy) in enumerate(_files(source, target)):
            if count == MOST_FILES:
                raise StageError(
                    f"{source} holds more than {MOST_FILES:,} files; "
                    "verify copies its working directory, so start it in the project's own folder"
                )
            _place(file, copy)
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


def _files(source: Path, target: Path) -> Iterator[tuple[Path, Path]]:
    inside = target.resolve()
    for folder, folders, names in os.walk(source):
        here = Path(folder)
        copy = target / here.relative_to(source)
        copy.mkdir(exist_ok=True)
        links = [name for name in folders if (here / name).is_symlink()]
        folders[:] = [
            name
            for name in folders
            if name not in _LEFT_OUT
            and name not in links
            and (here / name).resolve() != inside
            and not (here / name / "pyvenv.cfg").exists()
        ]
        yield from ((here / name, copy / name) for name in [*names, *links])


def _place(file: Path, copy: Path) -> None:
    if file.is_symlink() or not file.is_file():
        if file.exists() and (file.is_file() or file.is_dir()):
            copy.symlink_to(file.resolve())
    elif file.stat().st_size >= LINKED_FROM:
        copy.symlink_to(file.absolute())
    else:
        shutil.copy2(file, copy)
