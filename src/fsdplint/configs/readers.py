"""What the other files of a project say of a settings file: who reads it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from fsdplint.files import disk
from fsdplint.files.decoding import SourceError
from fsdplint.files.discover import SKIPPED_DIRECTORIES, project_root
from fsdplint.files.file import regular

_MOST_FILES = 2_000
_MOST_BYTES = 1_000_000
_PARSERS = re.compile(rb"\b(?:HfArgumentParser|TrlParser)\b")
_CODE = (".py",)
_NAMING = (".py", ".sh", ".yaml", ".yml")


class Readers:
    """What the files of each project say; they are read only when it is needed."""

    def __init__(self) -> None:
        self._parses: dict[Path, bool] = {}
        self._found: dict[tuple[Path, re.Pattern[str]], bool] = {}

    def parses_arguments(self, path: str) -> bool:
        """Return whether the project of a file has transformers or trl parse arguments."""
        root = project_root(Path(path))
        if root not in self._parses:
            self._parses[root] = any(_PARSERS.search(data) for data in _contents(root, _CODE))
        return self._parses[root]

    def names_config(self, path: str) -> bool:
        """Return whether the project of a file names it as `fsdp_config`."""
        name = re.escape(os.fsencode(Path(path).name))
        naming = re.compile(rb"fsdp_config[\"']?[ \t]*[=: ][ \t]*[\"']?[\w./${}-]*?\b" + name)
        root = project_root(Path(path))
        return any(naming.search(data) for data in _contents(root, _NAMING))

    def searches(self, path: str) -> Callable[[re.Pattern[str]], bool]:
        """Return a function that says whether code of the project of a file has a pattern."""
        root = project_root(Path(path))

        def has(pattern: re.Pattern[str]) -> bool:
            if (root, pattern) not in self._found:
                texts = (data.decode("utf-8", "replace") for data in _contents(root, _CODE))
                self._found[root, pattern] = any(pattern.search(text) for text in texts)
            return self._found[root, pattern]

        return has


def _contents(root: Path, suffixes: tuple[str, ...]) -> Iterator[bytes]:
    """Yield the contents of the first files of a project with one of these suffixes."""
    folders, left = [os.fspath(root)], _MOST_FILES
    while folders and left:
        for entry in _entries(folders.pop()):
            is_folder, is_file, is_link = disk.types(entry)
            if is_folder and not is_link and entry.name not in SKIPPED_DIRECTORIES:
                folders.append(entry.path)
            elif is_file and entry.name.endswith(suffixes) and left:
                left -= 1
                try:
                    yield regular(Path(entry.path), _MOST_BYTES)
                except (OSError, SourceError):
                    continue


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        return disk.entries(folder)
    except OSError:
        return []
