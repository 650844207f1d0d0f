"""The names that a file may bind for others, read off its text.

A name too many costs time and nothing else: the file is imported to look for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from fsdplint.files.suites import blocks, code_only
from fsdplint.knowledge.names import canonical
from fsdplint.knowledge.star_imports import STAR_NAMES

_WORD = re.compile(r"[^\W\d]\w*")
_ALL = re.compile(r"\b__all__\b")
_ALL_DISPLAY = re.compile(r"^__all__[ \t]*=[ \t]*[\[(]([^\])]*)[\])][ \t]*$", re.MULTILINE)
_COMMENT = re.compile(r"#[^\n]*")
_STRING = re.compile(r"[\"']([^\W\d]\w*)[\"']")


@dataclass(frozen=True, slots=True)
class Exports:
    """The names that a file may bind for others.

    Attributes:
        names: those in ``__all__``; without it every word outside of functions and classes, and
            what these are called.
        complete: a star import brings no other names.
    """

    names: frozenset[str]
    complete: bool


def exports(text: str) -> Exports:
    """Return the names that a file may bind for others."""
    listed = _ALL_DISPLAY.findall(text)
    if len(listed) == len(_ALL.findall(text)) == 1:
        display = _COMMENT.sub("", listed[0])
        if not _STRING.sub("", display).strip(", \t\f\r\n"):
            return Exports(frozenset(_STRING.findall(display)), complete=True)
    code = code_only(text)
    tops = [block for block in blocks(code) if block.parent is None]
    ends = [0, *(block.end for block in tops)]
    starts = [*(block.start for block in tops), len(code)]
    words = (_WORD.findall(code, *span) for span in zip(ends, starts, strict=True))
    defined = frozenset(block.name for block in tops)
    return Exports(defined.union(*words), complete=False)


def names_brought(module: str, level: int) -> frozenset[str]:
    """Return the names that a star import of a library's module binds, as far as known."""
    return frozenset() if level else STAR_NAMES.get(canonical(module), frozenset())
