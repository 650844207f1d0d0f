"""Reads a growing file bit by bit."""

from __future__ import annotations

from pathlib import Path

_NEWLINE = b"\n"


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
