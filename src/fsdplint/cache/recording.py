"""Record what a run saw and printed, for the cache."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING

from fsdplint.cache.folder import place, store
from fsdplint.cache.ir_pack import lowering_code, parser_folder
from fsdplint.cache.replay import key_of, name_of
from fsdplint.cache.report_entry import Entry, encoded
from fsdplint.files import disk

if TYPE_CHECKING:
    from fsdplint.cache.replay import Note

# What findings depend on besides our own code, by the names of the modules.
_DEPENDENCIES = ("click", "libcst", "pathspec", "sarif_om", "tomli")


class Recording:
    """A run under way."""

    def __init__(self, key: Sequence[str], notes: disk.Notes) -> None:
        self.key = key
        self.notes = notes

    def keep(self, said: Sequence[tuple[bool, str]], code: int) -> None:
        """Store what the run printed, with whether on standard error, and its exit code."""
        code_notes = _notes_on_code(self.notes.began)
        if not self.notes.repeatable or code_notes is None:
            return
        seen = ((*key, *shown) for key, shown in self.notes.seen.items())
        try:
            data = encoded(Entry(self.key, code, said, [*code_notes, *seen]))
        except ValueError:  # a name or a text that no entry has a place for
            return
        store(place(), name_of(self.key), data)


@contextmanager
def recording(arguments: Sequence[str]) -> Iterator[Recording | None]:
    """Record what the run with ``arguments`` sees, if it is to be cached."""
    key = key_of(list(arguments))
    if key is None:
        yield None
        return
    with disk.Notes() as notes:
        yield Recording(key, notes)


def _notes_on_code(began: int) -> list[Note] | None:
    """Return notes on the code that runs, ours and others'; None if some was just written.

    It may then be another than the one that was imported.
    """
    notes: list[Note] = []
    own = {_path_of(m) for n, m in list(sys.modules.items()) if n.partition(".")[0] == "fsdplint"}
    folders = {
        os.path.dirname(os.path.dirname(path))
        for name in _DEPENDENCIES
        if name in sys.modules and (path := _path_of(sys.modules[name]))
    }
    # What lowers counts by the IR cache, without being imported.
    if "fsdplint.engine.frontend.ir_cache" in sys.modules:
        own.update(map(str, lowering_code()))
        folders.update(filter(None, [parser_folder()]))
    for path in sorted(filter(None, own)):
        signature = disk.signature(os.stat(path), began)
        if not signature:
            return None
        notes.append((disk.CONTENT, path, signature, disk.digest(disk.read(path))))
    for folder in sorted(folders):
        signature = disk.signature(os.stat(folder), began)
        notes.append((disk.INSTALLED, folder, signature, disk.installed(folder)))
    return notes


def _path_of(module: ModuleType) -> str:
    return getattr(module, "__file__", None) or ""
