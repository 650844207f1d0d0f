"""The files of a run, each read once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fsdplint.files import disk
from fsdplint.files.decoding import SourceError
from fsdplint.files.file import SourceFile, absolute, load
from fsdplint.suppression.comments import has_own_comment

if TYPE_CHECKING:
    from fsdplint.cache.pack import Packs
    from fsdplint.engine.frontend.ir_cache import IRCache


# Characters of texts that are held. Of a larger tree, those that say nothing of sharding are read
# again where something of them is needed, so that memory does not grow with the number of files.
_MAX_HELD = 30_000_000


@dataclass(slots=True)
class Sources:
    """Files of a run, each seen as it was when it was first read.

    Attributes:
        overlay: what to see in the place of files on disk.
        alone: whether nothing but the overlay is read.
        packs: what files were lowered to by other runs, if that is kept.
        files: those that are held, None for one that cannot be read.
        most: the characters that are held; of what is above, only text that says something.
        left: those that are not held, with a hash of their text.
        lost: why some of these could not be read as they were before.
        characters: how many the texts have together.
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

    def read(self, path: str | Path) -> SourceFile | None:
        """The file at ``path``, or None if it cannot be read, which is noted as a failure."""
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
        """As `read`; the file is held from then on."""
        source = self.read(path)
        if self.left.pop(path, None) is not None:
            self.files[path] = source
        return source

    def is_left(self, path: str | Path) -> bool:
        """Whether nothing in the file at ``path`` is of interest by itself, and it is not held."""
        return absolute(path) in self.left

    def text(self, path: Path) -> str | None:
        """The text of the file at ``path``, or None if it cannot be read."""
        source = self.read(path)
        return None if source is None else source.text

    def ir_cache(self, root: Path) -> IRCache | None:
        """What the files of the project at ``root`` were lowered to, if that is kept."""
        return self.packs.of(root) if self.packs else None

    def held(self) -> dict[str, SourceFile]:
        """The files whose text is held."""
        return {path: source for path, source in self.files.items() if source is not None}

    def _again(self, key: str) -> SourceFile | None:
        """A file that was read before and not held; none if it is another one by now."""
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

    return mentions_sharding(source.text) or has_own_comment(source.text)
