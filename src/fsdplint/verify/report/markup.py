"""HTML elements: what is not one already is escaped."""

from __future__ import annotations

import re
from html import escape

from fsdplint.process.terminal import printable

_VOID = {"meta", "rect"}


class Markup(str):
    """Text that is HTML."""

    __slots__ = ()


def tag(name: str, /, *children: str, **attributes: str | int) -> Markup:
    """An element. A trailing ``_`` of an attribute's name is cut, others are read as ``-``."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
    )
    if name in _VOID:
        return Markup(f"<{name}{given}>" if name == "meta" else f"<{name}{given}/>")
    return Markup(f"<{name}{given}>{joined(*children)}</{name}>")


def joined(*children: str) -> Markup:
    """Several pieces one after the other."""
    return Markup(
        "".join(c if isinstance(c, Markup) else escape(printable(c, "\t\n")) for c in children)
    )


def prose(text: str) -> Markup:
    """Text in which what stands in backticks is code."""
    parts = re.split(r"`([^`\n]+)`", text)
    return joined(*(tag("code", part) if at % 2 else part for at, part in enumerate(parts)))
