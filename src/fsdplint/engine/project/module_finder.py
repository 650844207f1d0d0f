"""Find the file of the project that an import resolves to."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from fsdplint.engine.project.imports import Shared
from fsdplint.engine.project.search_path import added_folders
from fsdplint.files import disk


class ModuleFinder:
    """The modules below ``root``; of `torch` and the standard library there are none.

    Args:
        read: returns the text of a file, None if it cannot be read.
        shared: equal values that are kept once.
    """

    def __init__(self, root: Path, read: Callable[[Path], str | None], shared: Shared) -> None:
        self._root = root
        self._read = read
        self._found: dict[tuple[str, int, str], Path | None] = {}
        self._shared = shared
        self._added: dict[Path, list[Path]] = {}
        self._folders = _Folders()

    def find(self, module: str, level: int, directory: Path) -> Path | None:
        """Return the file of a module for importers in a folder, None for a library."""
        top = module.split(".")[0]
        if not level and (top == "torch" or top in sys.stdlib_module_names):
            return None
        key = (module, level, str(directory))  # a string is compared faster than a path
        if key not in self._found:
            found = self._search(module, level, directory)
            self._found[key] = self._shared.setdefault(found, found)
        return self._found[key]

    def is_package(self, folder: Path) -> bool:
        """Return whether a folder has a file that makes it a package."""
        return self._folders.module(folder, ()) is not None

    def add(self, file: Path) -> None:
        """Have a file found that is not on disk: a script that a notebook writes."""
        self._folders.add(file)

    def _search(self, module: str, level: int, directory: Path) -> Path | None:
        parts = module.split(".") if module else []
        if level:
            base = directory
            for _ in range(level - 1):
                base = base.parent
            return self._below_root(self._folders.module(base, parts))
        for bases in (self._bases, self._added_bases):
            for base in bases(directory):
                found = self._below_root(self._folders.module(base, parts))
                if found is not None:
                    return found
        return None

    def _below_root(self, found: Path | None) -> Path | None:
        return found if found is not None and self._root in found.parents else None

    def _bases(self, directory: Path) -> Iterator[Path]:
        """Yield the folders where absolute imports start: those above the importer, then src."""
        current = directory
        while True:
            yield current
            if current == self._root or current.parent == current:
                break
            current = current.parent
        yield self._root / "src"

    def _added_bases(self, directory: Path) -> list[Path]:
        """Return the folders that the files of one folder add to ``sys.path``."""
        if directory not in self._added:
            files = sorted(self._folders.listed(os.fspath(directory))[0])
            texts = (self._read(directory / name) for name in files if name.endswith(".py"))
            names = {name for text in texts if text for name in added_folders(text)}
            above = list(self._bases(directory))
            self._added[directory] = [base / name for name in sorted(names) for base in above]
        return self._added[directory]


class _Folders:
    """Folders of a project, each listed once, since most imports look for what is not there."""

    def __init__(self) -> None:
        self.known: dict[str, tuple[frozenset[str], frozenset[str]]] = {}

    def module(self, base: Path, parts: Sequence[str]) -> Path | None:
        """Return the file of a module by the parts of its name, seen from the folder ``base``."""
        folder = os.fspath(base)
        for part in parts[:-1]:
            if part not in self.listed(folder)[1]:
                return None
            folder = f"{folder.rstrip(os.sep)}{os.sep}{part}"
        files, folders = self.listed(folder)
        if not parts:
            return Path(folder, "__init__.py") if "__init__.py" in files else None
        last = parts[-1]
        if f"{last}.py" in files:
            return Path(folder, f"{last}.py")
        package = Path(folder, last)
        if last in folders and "__init__.py" in self.listed(os.fspath(package))[0]:
            return package / "__init__.py"
        return None

    def add(self, file: Path) -> None:
        """Have a file found that is not on disk: a script that a notebook writes."""
        inside = os.fspath(file.parent)
        files, folders = self.listed(inside)
        self.known[inside] = (files | {file.name}, folders)

    def listed(self, folder: str) -> tuple[frozenset[str], frozenset[str]]:
        """Return the names of the files and folders in ``folder``; none if it cannot be listed."""
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
