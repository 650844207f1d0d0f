"""The files of a run, each read once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from fsdplint.source import SourceError, SourceFile, load
from fsdplint.source.file import absolute

if TYPE_CHECKING:
    from fsdplint.cache.pack import Packs
    from fsdplint.engine.kept import Kept


@dataclass(slots=True)
class Sources:
    """Files of a run, each read once.

    Attributes:
        overlay: what to see in the place of files on disk.
        alone: whether nothing but the overlay is read.
        packs: what files were lowered to by other runs, if that is kept.
    """

    overlay: Mapping[str, SourceFile] = field(default_factory=dict)
    alone: bool = False
    packs: Packs | None = None
    files: dict[str, SourceFile | None] = field(default_factory=dict)
    failures: list[SourceError] = field(default_factory=list)

    def read(self, path: str | Path) -> SourceFile | None:
        """The file at ``path``, or None if it cannot be read, which is noted as a failure."""
        key = absolute(path)
        if self.alone and key not in self.overlay:
            return None
        if key not in self.files:
            try:
                self.files[key] = self.overlay.get(key) or load(Path(key))
            except SourceError as error:
                self.failures.append(error)
                self.files[key] = None
        return self.files[key]

    def text(self, path: Path) -> str | None:
        """The text of the file at ``path``, or None if it cannot be read."""
        source = self.read(path)
        return None if source is None else source.text

    def kept(self, root: Path) -> Kept | None:
        """What the files of the project at ``root`` were lowered to, if that is kept."""
        return self.packs.of(root) if self.packs else None

    def loaded(self) -> dict[str, SourceFile]:
        """The files that could be read."""
        return {path: source for path, source in self.files.items() if source is not None}
