"""Reads files that others append to: bit by bit, or the end alone."""

from __future__ import annotations

from pathlib import Path

_NEWLINE = b"\n"
_MOST = 1 << 16
"""Bytes of an end; a script may print without one."""


def last(path: Path) -> str:
    """Returns the end of a text, whatever bytes are in it."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _MOST))
        return file.read(_MOST).decode("utf-8", errors="replace")


class Tail:
    """The lines of a file that others append to, each one given out once."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset, self._rest = path, 0, b""

    def lines(self) -> list[str]:
        """Returns the lines completed since the last call; one cut short waits for its end."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                new = file.read()
        except FileNotFoundError:
            return []
        self._offset += len(new)
        complete, newline, rest = new.rpartition(_NEWLINE)
        if not newline:
            self._rest += new
            return []
        text, self._rest = self._rest + complete, rest
        return text.decode("utf-8", errors="replace").split("\n")
