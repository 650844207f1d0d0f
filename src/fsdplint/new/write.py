"""Writing a new project: the whole folder, or nothing."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path


class OccupiedError(Exception):
    """Something is in the place of the new folder."""


def create(folder: Path, files: Mapping[str, str]) -> None:
    """Make ``folder``, which may be there and empty, with ``files`` by their paths in it.

    All files are written beside the folder and then moved, so an error leaves none in it.

    Raises:
        OccupiedError: there is a file, or a folder that is not empty.
        OSError: the system refuses to make the folder or a file.
    """
    target = folder.resolve()
    is_there = target.is_dir()
    if any(target.iterdir()) if is_there else target.exists() or folder.is_symlink():
        raise OccupiedError(f"{folder} exists and is not an empty folder")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fsdplint-", dir=target.parent) as beside:
        staged = Path(beside, target.name)
        for name, text in files.items():
            path = staged / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8", newline="\n")
        if is_there:  # moved into, since a shell may be in it
            _move(staged, target)
        else:
            staged.rename(target)


def _move(source: Path, target: Path) -> None:
    """Move all that is in ``source`` into ``target``, or nothing."""
    moved: list[Path] = []
    try:
        for path in source.iterdir():
            moved.append(path.rename(target / path.name))
    except BaseException:  # an interrupt too
        for path in moved:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        raise
