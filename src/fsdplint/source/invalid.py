"""A file that is not Python."""

from __future__ import annotations


class InvalidSyntax(Exception):
    """A file that is not Python, with the character offset where the parser gave up."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
