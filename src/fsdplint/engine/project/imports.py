"""Imports read off the text, without a syntax tree: enough to know which file refers to which.

A line of a docstring that looks like an import is taken for one; that makes a file look related
that is not, which costs time and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fsdplint.files.lexing import NEWLINE

# Where a name comes from: module, level of a relative import, member or None for a module.
Binding = tuple[str, int, "str | None"]
Shared = dict[Any, Any]

# Blanks are allowed around the dots of a name.
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


@dataclass(frozen=True, slots=True)
class Imports:
    """The imports anywhere in a file.

    Attributes:
        bindings: the names that they bind.
        modules: the modules that they may refer to, each with the dots before it: ``from a import
            b`` may refer to both ``a`` and ``a.b``.
        stars: the modules that are imported with a star.
    """

    bindings: Mapping[str, Binding]
    modules: tuple[tuple[str, int], ...]
    stars: tuple[tuple[str, int], ...]


def imports(text: str, shared: Shared) -> Imports:
    """Return the imports of a file.

    Args:
        shared: the names, bindings and modules of other files, each mapped to itself. Files import
            much the same, which is so in memory once.
    """
    bindings: dict[str, Binding] = {}
    modules: dict[tuple[str, int], None] = {}
    stars: list[tuple[str, int]] = []
    for dots, module, members, plain in _statements(text):
        level = len(dots)
        if plain:
            bindings.update(_plain(plain))
            names = (_BLANKS.sub("", _AS.split(part)[0]) for part in plain.split(","))
            modules.update(dict.fromkeys((name, 0) for name in names))
            continue
        modules[module, level] = None
        if members.strip() == "*":
            stars.append((module, level))
        for name, alias in _MEMBER.findall(members):
            bindings[alias or name] = (module, level, name)
            modules[f"{module}.{name}" if module else name, level] = None
    same = shared.setdefault
    own = {same(name, name): same(binding, binding) for name, binding in bindings.items()}
    return Imports(own, tuple([same(each, each) for each in modules]), tuple(stars))


def spelled(module: str, level: int) -> str:
    """Return a module as an import spells it, with the dots of a relative one."""
    return "." * level + module


def _statements(text: str) -> list[tuple[str, str, str, str]]:
    """Return relative dots, module, imported members, and the names of a plain import."""
    if "import" not in text:
        return []
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
