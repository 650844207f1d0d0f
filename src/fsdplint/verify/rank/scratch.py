"""Keep what a script writes, moves and deletes inside the scratch copy of its working directory.

Large files and the folders behind links are not copied but linked to. Before anything writes
through such a link it gives way: to a copy of the file, or to a folder of links to what the
original holds. Links that the script makes inside the copy are its own business.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fsdplint.verify.rank.recorder import Recorder

_WRITES = os.O_WRONLY | os.O_RDWR
_ENTRIES = {
    "os.mkdir": (0,),
    "os.remove": (0,),
    "os.rename": (0, 1),
    "os.link": (1,),
    "os.symlink": (1,),
}
"""Audit events (Python's audit events table) that change a folder's entries: which arguments."""
_WHOLE = ("os.rmdir", "shutil.rmtree")
_CONTENT = ("os.truncate", "os.chmod", "os.chown", "os.utime", "sqlite3.connect")
_WATCHED = frozenset({"open", *_ENTRIES, *_WHOLE, *_CONTENT})


class Scratch:
    """The copy at `root`; ranks that take the same link away wait for each other at `lock`."""

    def __init__(self, root: str, lock: str) -> None:
        self._root, self._lock = root, lock
        self._busy = threading.local()

    def own_folder(self, path: Any) -> None:
        """Make sure that the folder an entry lies in is the copy's own."""
        for link in self._above(path):
            self._give_way(link, keep=True)

    def own(self, path: Any, *, keep: bool) -> None:
        """Make sure that a file or folder is the copy's own.

        Args:
            keep: a file's content is needed.
        """
        self.own_folder(path)
        absolute = self._inside(path)
        if absolute:
            self._give_way(absolute, keep=keep)

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Make the copy own what an audit event is about to change."""
        if event == "open":
            path, _, flags = arguments
            if flags & _WRITES and not isinstance(path, int):
                self.own(path, keep=not flags & os.O_TRUNC)
        elif event in _ENTRIES:
            for index in _ENTRIES[event]:
                self.own_folder(arguments[index])
        elif (event in _WHOLE or event in _CONTENT) and not isinstance(arguments[0], int):
            self.own(arguments[0], keep=True)

    def _inside(self, path: Any) -> str:
        """Return an absolute path inside the copy, or nothing."""
        absolute = os.path.abspath(os.fsdecode(path))
        return absolute if absolute.startswith(f"{self._root}{os.sep}") else ""

    def _above(self, path: Any) -> Iterator[str]:
        """Yield the folders between the root and a path, outermost first."""
        here, absolute = self._root, self._inside(path)
        for name in os.path.relpath(absolute, here).split(os.sep)[:-1] if absolute else ():
            here = os.path.join(here, name)
            yield here

    def _give_way(self, path: str, *, keep: bool) -> None:
        """Replace a link that leads out of the copy, under the ranks' lock."""
        if not self._leads_out(path):
            return
        with self._alone():
            if not self._leads_out(path):
                return
            target = os.path.realpath(path)
            if os.path.isdir(target):
                _link_entries(target, path)
            elif keep and os.path.exists(target):
                copy = f"{path}.{os.getpid()}"
                shutil.copyfile(target, copy)
                os.replace(copy, path)
            else:
                os.unlink(path)

    def _leads_out(self, path: str) -> bool:
        if not os.path.islink(path):
            return False
        return not os.path.realpath(path).startswith(f"{self._root}{os.sep}")

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with open(self._lock, "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def install(self, recorder: Recorder) -> None:
        """Watch all that Python itself opens, moves and deletes in this process from now on."""
        look = recorder.probe("scratch")(self.audit)

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            if event in _WATCHED and not getattr(self._busy, "now", False):
                self._busy.now = True
                try:
                    look(event, arguments)
                finally:
                    self._busy.now = False

        sys.addaudithook(hook)


def _link_entries(target: str, path: str) -> None:
    """Replace a link to `target` by a folder of links to its entries."""
    copy = f"{path}.{os.getpid()}"
    os.mkdir(copy)
    for entry in os.scandir(target):
        os.symlink(entry.path, os.path.join(copy, entry.name))
    os.unlink(path)
    os.rename(copy, path)
