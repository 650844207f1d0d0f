"""What the other files of a project say of a settings file: who reads it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from types import MappingProxyType

from fsdplint.files import disk
from fsdplint.files.decoding import SourceError
from fsdplint.files.discover import SCRIPT_SUFFIXES, SKIPPED_DIRECTORIES, project_root
from fsdplint.files.file import SourceFile, from_bytes, regular
from fsdplint.knowledge.accelerate_settings import SETS_WRAP_POLICY

_MOST_FILES = 2_000
_MOST_BYTES = 1_000_000
_PARSERS = re.compile(rb"\b(?:HfArgumentParser|TrlParser)\b")
_CONFIG_FILE = re.compile(rb"--config[-_]file\b")
_CODE = (".py",)
_PROGRAMS = (".py", ".sh")
_NAMING = (".py", ".sh", ".yaml", ".yml")
_TEXTS = (".py", ".pyi", ".ipynb", ".yaml", ".yml", ".json")
_REMOTE = rb"trust[_-]remote[_-]code"


class Readers:
    """What the files of each project say; they are read only when it is needed.

    Attributes:
        alone: whether the files of the overlay are all there is.
    """

    def __init__(
        self, overlay: Mapping[str, SourceFile] = MappingProxyType({}), *, alone: bool = False
    ) -> None:
        self.alone = alone
        self._overlay = overlay
        self._parses: dict[Path, bool] = {}
        self._scripts: dict[Path, list[tuple[str, str]]] = {}
        self._found: dict[tuple[Path, bytes], bool] = {}

    def has(self, path: str) -> bool:
        """Return whether there is a file at an absolute path."""
        return path in self._overlay or (not self.alone and disk.is_file(path))

    def text(self, path: str) -> str | None:
        """Return the text of the file at an absolute path, None if it cannot be read."""
        if path in self._overlay:
            return self._overlay[path].text
        if not path:
            return None
        with suppress(OSError, SourceError):
            return from_bytes(regular(Path(path), _MOST_BYTES), path).text
        return None

    def parses_arguments(self, path: str) -> bool:
        """Return whether the project of a file has transformers or trl parse arguments."""
        root = project_root(Path(path))
        if root not in self._parses:
            self._parses[root] = any(_PARSERS.search(d) for d in _contents(root, _CODE) if d)
        return self._parses[root]

    def may_define(self, path: str, name: str) -> bool:
        """Return whether code of the project of a file may have a class of this name."""
        # Behind a quote it may be a text that is looked for.
        own = rb"(?m)^[^\"'#\n]*\b%s\b" % re.escape(name.encode())
        return self.may_have(path, own, _CODE)

    def may_load_remote_code(self, path: str) -> bool:
        """Return whether the project of a file may use models whose code is not in a package."""
        return self.may_have(path, _REMOTE, _NAMING)

    def may_set_wrap_policy(self, path: str) -> bool:
        """Return whether code or a script of the project of a file may set a wrap policy."""
        return self.may_have(path, SETS_WRAP_POLICY, _PROGRAMS)

    def names_config(self, path: str) -> bool:
        """Return whether the project of a file names it as `fsdp_config`."""
        name = re.escape(os.fsencode(Path(path).name))
        naming = re.compile(rb"fsdp_config[\"']?[ \t]*[=: ][ \t]*[\"']?[\w./${}-]*?\b" + name)
        root = project_root(Path(path))
        return any(naming.search(data) for data in _contents(root, _NAMING) if data)

    def scripts_naming(self, path: str) -> Iterator[tuple[str, str]]:
        """Yield the scripts of a file's project that name a config file, each with its text."""
        root = project_root(Path(path))
        if root not in self._scripts:
            self._scripts[root] = [] if self.alone else list(_naming_config(root))
        yield from self._scripts[root]

    def may_read(self, path: str, variable: str) -> bool:
        """Return whether a file in the project of a script may read a variable."""
        name = re.escape(variable.encode())
        return self.may_have(path, rb"\b%s\b" % name) or self.may_have(
            path, rb"\$\{?%s\b|[\"']%s[\"']|printenv +%s\b" % (name, name, name), SCRIPT_SUFFIXES
        )

    def may_have(self, path: str, pattern: bytes, suffixes: tuple[str, ...] = _TEXTS) -> bool:
        """Return whether a file in the project of a script may have a text.

        It may if the project has files that are not read. A text that is no file is in no project.
        """
        if self.alone or not self.has(path):
            return False
        key = project_root(Path(path)), pattern
        if key not in self._found:
            wanted = re.compile(pattern)
            every = _contents(key[0], suffixes)
            self._found[key] = any(data is None or wanted.search(data) for data in every)
        return self._found[key]

    def searches(self, path: str) -> Callable[[re.Pattern[str]], bool]:
        """Return a function that says whether code of the project of a file may have a pattern."""
        return lambda pattern: self.may_have(path, pattern.pattern.encode(), _CODE)


def _contents(root: Path, suffixes: tuple[str, ...]) -> Iterator[bytes | None]:
    """Yield the contents of a project's files with one of these suffixes, None for unread ones."""
    for number, path in enumerate(_files(root, suffixes)):
        if number == _MOST_FILES:
            yield None
            return
        try:
            yield regular(path, _MOST_BYTES)
        except (OSError, SourceError):
            yield None


def _naming_config(root: Path) -> Iterator[tuple[str, str]]:
    for path in islice(_files(root, SCRIPT_SUFFIXES), _MOST_FILES):
        with suppress(OSError, SourceError):
            data = regular(path, _MOST_BYTES)
            if _CONFIG_FILE.search(data):
                yield path.as_posix(), from_bytes(data, path.as_posix()).text


def _files(root: Path, suffixes: tuple[str, ...]) -> Iterator[Path]:
    folders = [os.fspath(root)]
    while folders:
        for entry in _entries(folders.pop()):
            is_folder, is_file, is_link = disk.types(entry)
            if is_folder and not is_link and entry.name not in SKIPPED_DIRECTORIES:
                folders.append(entry.path)
            elif is_file and entry.name.endswith(suffixes):
                yield Path(entry.path)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        return disk.entries(folder)
    except OSError:
        return []
