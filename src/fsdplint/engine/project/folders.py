"""Folders as imports see them: which modules and packages they hold."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from fsdplint.files import disk


class Folders:
    """Folders of a project, each listed once, since most imports look for what is not there."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[frozenset[str], frozenset[str]]] = {}

    def module(self, base: Path, parts: Sequence[str]) -> Path | None:
        """The file of the module whose name has the ``parts``, seen from the folder ``base``."""
        folder = os.fspath(base)
        for part in parts[:-1]:
            if part not in self._listed(folder)[1]:
                return None
            folder = f"{folder.rstrip(os.sep)}{os.sep}{part}"
        files, folders = self._listed(folder)
        if not parts:
            return Path(folder, "__init__.py") if "__init__.py" in files else None
        last = parts[-1]
        if f"{last}.py" in files:
            return Path(folder, f"{last}.py")
        package = Path(folder, last)
        if last in folders and "__init__.py" in self._listed(os.fspath(package))[0]:
            return package / "__init__.py"
        return None

    def _listed(self, folder: str) -> tuple[frozenset[str], frozenset[str]]:
        """The names of the files and of the folders in ``folder``; none if it cannot be listed."""
        if folder not in self.known:
            try:
                found = disk.entries(folder) if disk.is_folder(folder) else []
            except OSError:
                found = []
            self.known[folder] = (
                frozenset(entry.name for entry in found if disk.types(entry)[1]),
                frozenset(entry.name for entry in found if disk.types(entry)[0]),
            )
        return self.known[folder]
