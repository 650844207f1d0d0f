"""Folders that a file adds to ``sys.path``, as far as its text names them."""

from __future__ import annotations

import re

_ADDS = re.compile(r"\bsys\.path\.(?:append|insert|extend)\s*\(([^#\n]*(?:\n[^#\n]+){0,3})")
_TEXT = re.compile(r"[\"']([^\"'\n]*)[\"']")
_PARTS = re.compile(r"[\\/]+")


def added_folders(text: str) -> frozenset[str]:
    """Return the folders, each by the parts of its path that the text writes out.

    ``os.path.join(os.path.dirname(__file__), "..", "lib")`` is "lib": which folder above the file
    it is in is left open.
    """
    found = set[str]()
    if "sys.path" not in text:
        return frozenset()
    for added in _ADDS.finditer(text):
        written = _upto_closing(added[1])
        parts = [part for each in _TEXT.findall(written) for part in _PARTS.split(each)]
        named = [part for part in parts if part.strip(".")]
        if named and all(part.replace("-", "_").isidentifier() for part in named):
            found.add("/".join(named))
    return frozenset(found)


def _upto_closing(text: str) -> str:
    """Return what stands before the parenthesis that closes a call."""
    depth = 1
    for index, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if not depth:
            return text[:index]
    return text
