"""The files of a run, each read once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fsdplint.files import disk
from fsdplint.files.decoding import SourceError
from fsdplint.files.file import SourceFile, absolute, load
from fsdplint.outcome import never
from fsdplint.suppression.comments import has_own_comment

if TYPE_CHECKING:
    from fsdplint.cache.ir_pack import Packs
    from fsdplint.engine.frontend.ir_cache import IRCache


# Characters of texts that stay in memory. In a larger tree, files without sharding are read again
# when they are needed, so that memory does not grow with the number of files.
_MAX_HELD = 30_000_000


@dataclass(slots=True)
class Sources:
    """Files of a run, each seen as it was when it was first read.

    Attributes:
        overlay: what to read instead of files on disk.
        alone: whether nothing but the overlay is read.
        packs: the cached IR of files, None without a cache.
        files: those in memory, None for one that cannot be read.
        most: the characters to keep in memory; beyond, only files of interest are kept.
        left: those that are not in memory, with a hash of their text.
        lost: why some of these could not be read as they were before.
        characters: how many the texts have together.
        written: the scripts that notebooks write, by a path below that of their notebook.
        is_outdated: whether nobody waits any more for the result of the run.
    """

    overlay: Mapping[str, SourceFile] = field(default_factory=dict)
    alone: bool = False
    packs: Packs | None = None
    files: dict[str, SourceFile | None] = field(default_factory=dict)
    most: int = field(default_factory=lambda: _MAX_HELD)
    left: dict[str, int] = field(default_factory=dict)
    lost: list[SourceError] = field(default_factory=list)
    characters: int = 0
    failures: list[SourceError] = field(default_factory=list)
    written: dict[str, SourceFile] = field(default_factory=dict)
    is_outdated: Callable[[], bool] = never

    def read(self, path: str | Path) -> SourceFile | None:
        """Return the file at ``path``, None if it cannot be read; record that as a failure."""
        key = absolute(path)
        if self.alone and key not in self.overlay:
            return None
        if key in self.left:
            return self._again(key)
        if key not in self.files:
            source = self._loaded(key)
            self.characters += len(source.text) if source else 0
            if source and self.characters > self.most and not _is_of_interest(source):
                self.left[key] = hash(source.text)
                return source
            self.files[key] = source
        return self.files[key]

    def hold(self, path: str) -> SourceFile | None:
        """Return what `read` does, and keep the file in memory from then on."""
        source = self.read(path)
        if self.left.pop(path, None) is not None:
            self.files[path] = source
        return source

    def is_left(self, path: str | Path) -> bool:
        """Return whether the file at ``path``, with nothing of interest, is not in memory."""
        return absolute(path) in self.left

    def text(self, path: Path) -> str | None:
        """Return the text of the file at ``path``, or None if it cannot be read."""
        source = self.written.get(path.as_posix()) or self.read(path)
        if source is None or source.notebook is None:
            return None if source is None else source.text
        return source.programs[path.as_posix().removeprefix(source.path).removeprefix("/")]

    def line_name(self, path: str, line: int) -> str:
        """Return "line 47" or, for code of a notebook, "line 2 of cell 3"."""
        source = self.written.get(path) or self.read(path)
        return source.line_name(line) if source else f"line {line}"

    def with_scripts(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Return ``paths``, each notebook with the scripts that it writes after it."""
        return tuple(each for path in paths for each in (path, *self._scripts(path)))

    def _scripts(self, path: str) -> list[str]:
        source = None
        if path.endswith(".ipynb") and not self.is_left(path):
            source = self.read(path)
        names = source.programs.keys() - {""} if source else set()
        found = [f"{path}/{name}" for name in sorted(names)]
        self.written.update((script, source) for script in found if source)
        return found

    def on_disk(self, path: str) -> str:
        """Return the file that holds the code at ``path``: for a written script, the notebook."""
        return self.written[path].path if path in self.written else path

    def ir_cache(self, root: Path) -> IRCache | None:
        """Return the cached IR of the project at ``root``, None without a cache."""
        return self.packs.of(root) if self.packs else None

    def held(self) -> dict[str, SourceFile]:
        """Return the files that are in memory."""
        return {path: source for path, source in self.files.items() if source is not None}

    def _again(self, key: str) -> SourceFile | None:
        """Return a file that was read before and not kept; None if it has changed since."""
        source = self._loaded(key)
        if source is not None and hash(source.text) == self.left[key]:
            return source
        disk.unrepeatable()
        self.lost.append(SourceError(key, "was changed while it was checked"))
        del self.left[key]
        self.files[key] = None
        return None

    def _loaded(self, key: str) -> SourceFile | None:
        try:
            return self.overlay.get(key) or load(Path(key))
        except SourceError as error:
            if key not in self.left:
                self.failures.append(error)
            return None


def _is_of_interest(source: SourceFile) -> bool:
    from fsdplint.engine.project.prefilter import (
        mentions_sharding,  # with all that is known of PyTorch
    )
    from fsdplint.knowledge.frameworks import uses_launcher

    text = source.text
    return mentions_sharding(text) or uses_launcher(text) or has_own_comment(text)
