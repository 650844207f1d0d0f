"""Imports read off the text, without a syntax tree: enough to tell who refers to whom.

A line of a docstring that looks like an import is taken for one; that makes a file look related
that is not, which costs time and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from fsdplint.source.lexing import NEWLINE

# Where a name comes from: module, level of a relative import, member or None for a module.
Binding = tuple[str, int, "str | None"]

# Blanks may stand around the dots of a name.
_DOTTED = r"\w+(?:[ \t\f]*\.[ \t\f]*\w+)*"
_IMPORT = re.compile(
    rf"(?:^|[;:])[ \t\f]*(?:from\b((?:[ \t\f]*\.)*)[ \t\f]*((?:{_DOTTED})?)[ \t\f]*"
    r"import\b[ \t\f]*(\([^)]*\)|[^\n;]*)|import[ \t\f]+([\w., \t\f]+))",
    re.MULTILINE,
)
_MEMBER = re.compile(r"([^\W\d]\w*)(?:[ \t\f]+as[ \t\f]+([^\W\d]\w*))?")
_AS = re.compile(r"[ \t\f]+as[ \t\f]+")
_BLANKS = re.compile(r"[ \t\f]+")
_COMMENT = re.compile(r"#[^\n]*")


def imported_bindings(text: str) -> dict[str, Binding]:
    """The names that imports anywhere in a file bind."""
    found: dict[str, Binding] = {}
    for dots, module, members, plain in _statements(text):
        if plain:
            found.update(_plain(plain))
        else:
            for name, alias in _MEMBER.findall(members):
                found[alias or name] = (module, len(dots), name)
    return found


def _statements(text: str) -> list[tuple[str, str, str, str]]:
    """Relative dots, module, imported members, and the list of a plain import."""
    if "\r" in text:
        text = NEWLINE.sub("\n", text)
    if "\\\n" in text:
        text = text.replace("\\\n", " ")
    found: list[tuple[str, str, str, str]] = _IMPORT.findall(_COMMENT.sub("", text))
    return [
        (_BLANKS.sub("", dots), _BLANKS.sub("", module), members, plain)
        for dots, module, members, plain in found
    ]


def _plain(names: str) -> Iterator[tuple[str, Binding]]:
    for part in names.split(","):
        name, _, alias = _AS.sub("=", part.strip()).partition("=")
        name = _BLANKS.sub("", name)
        if name:
            top = name.split(".")[0]
            yield alias or top, (name if alias else top, 0, None)


def imported_modules(text: str) -> Iterator[tuple[str, int]]:
    """The modules a file imports, with ``from a import b`` giving both ``a`` and ``a.b``."""
    for dots, module, members, plain in _statements(text):
        if plain:
            yield from ((_BLANKS.sub("", _AS.split(part)[0]), 0) for part in plain.split(","))
            continue
        yield module, len(dots)
        for name, _ in _MEMBER.findall(members):
            yield f"{module}.{name}" if module else name, len(dots)
