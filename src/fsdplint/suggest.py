"""Spellings that are close to what somebody typed."""

from __future__ import annotations

from collections.abc import Iterable


def suggest(word: str, known: Iterable[str]) -> str:
    """Return a question to append to an error message, "" if no known word is like ``word``."""
    from difflib import get_close_matches

    spellings = {name.lower(): name for name in known}
    close = get_close_matches(word.lower(), spellings, n=1, cutoff=0.7)
    return f"; did you mean {spellings[close[0]]!r}?" if close else ""
