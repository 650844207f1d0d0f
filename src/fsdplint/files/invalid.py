"""Text that is not parsed: it is not Python, or would take too much."""

from __future__ import annotations


class InvalidSyntax(Exception):
    """A file that is not Python, with the character offset where the parser gave up."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


class TooDemanding(Exception):
    """Text that would take minutes, or the process's stack or memory; the message is one line."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message
