"""The files of a project that may have a say in something, found by their text."""

from __future__ import annotations

import re

from fsdplint.engine.program import Program
from fsdplint.engine.project.unit import Unit

MAX_FILES = 100
"""So many are lowered for one question; where more may have a say, the answer is unknown."""


class UnknownError(Exception):
    """What is asked for cannot be known from the text."""


def matching(program: Program, pattern: str, word: str) -> list[Unit]:
    """The files whose text has ``word`` in a place that ``pattern`` finds; those that are no
    Python are left out.

    Raises:
        UnknownError: there are too many.
    """
    found = re.compile(pattern)
    texts = ((path, program.project.read(path) or "") for path in program.files)
    paths = [path for path, text in texts if word in text and found.search(text)]
    if len(paths) > MAX_FILES:
        raise UnknownError
    units = map(program.project.unit, paths)
    return [unit for unit in units if unit is not None]


def reading(program: Program, attribute: str) -> list[Unit]:
    """The files with ``.attribute``, or with its name as a text on its own."""
    name = re.escape(attribute)
    return matching(program, rf"\.\s*{name}\b|[\"']{name}[\"']", attribute)


def mentions(program: Program, pattern: str, word: str) -> bool:
    """Whether a file has ``word`` in a place that ``pattern`` finds, or too many do to know."""
    try:
        return bool(matching(program, pattern, word))
    except UnknownError:
        return True
