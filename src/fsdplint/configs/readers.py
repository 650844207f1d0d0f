"""What the other files of a project say of a settings file: who reads it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from fsdplint.files import disk
from fsdplint.files.decoding import SourceError
from fsdplint.files.discover import SKIPPED_DIRECTORIES, project_root
from fsdplint.files.file import regular
from fsdplint.knowledge.accelerate_settings import SETS_WRAP_POLICY

_MOST_FILES, _MANY_FILES = 2_000, 20_000
_MOST_BYTES = 1_000_000
_PARSERS = re.compile(rb"\b(?:HfArgumentParser|TrlParser)\b")
_CODE = (".py",)
_PROGRAMS = (".py", ".sh")
_NAMING = (".py", ".sh", ".yaml", ".yml")
_REMOTE = re.compile(rb"trust[_-]remote[_-]code")


class Readers:
    """What the files of each project say; they are read only when it is needed."""

    def __init__(self) -> None:
        self._parses: dict[Path, bool] = {}

    def parses_arguments(self, path: str) -> bool:
        """Return whether the project of a file has transformers or trl parse arguments."""
        root = project_root(Path(path))
        if root not in self._parses:
            self._parses[root] = any(_PARSERS.search(data) for data in _contents(root, _CODE))
        return self._parses[root]

    def may_define(self, path: str, name: str) -> bool:
        """Return whether code of the project of a file may have a class of this name."""
        # Behind a quote it may be a text that is looked for.
        own = re.compile(rb"^[^\"'#\n]*\b" + re.escape(name.encode()) + rb"\b", re.MULTILINE)
        return _is_said(path, _CODE, own)

    def may_load_remote_code(self, path: str) -> bool:
        """Return whether the project of a file may use models whose code is not in a package."""
        return _is_said(path, _NAMING, _REMOTE)

    def may_set_wrap_policy(self, path: str) -> bool:
        """Return whether code or a script of the project of a file may set a wrap policy."""
        return _is_said(path, _PROGRAMS, SETS_WRAP_POLICY)

    def names_config(self, path: str) -> bool:
        """Return whether the project of a file names it as `fsdp_config`."""
        name = re.escape(os.fsencode(Path(path).name))
        naming = re.compile(rb"fsdp_config[\"']?[ \t]*[=: ][ \t]*[\"']?[\w./${}-]*?\b" + name)
        root = project_root(Path(path))
        return any(naming.search(data) for data in _contents(root, _NAMING))


def _is_said(path: str, suffixes: tuple[str, ...], said: re.Pattern[bytes]) -> bool:
    """Return whether a file of a project says something, or may, since there are too many.

    A text that is no file on disk is in no project.
    """
    count = 0
    if not disk.is_file(Path(path)):
        return False
    for data in _contents(project_root(Path(path)), suffixes, _MANY_FILES):
        count += 1
        if said.search(data):
            return True
    return count >= _MANY_FILES


def _contents(root: Path, suffixes: tuple[str, ...], most: int = _MOST_FILES) -> Iterator[bytes]:
    """Yield the contents of the first files of a project with one of these suffixes."""
    folders, left = [os.fspath(root)], most
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
