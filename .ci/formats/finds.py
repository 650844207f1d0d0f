"""What a reader takes from a report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

FAILED = "not checked"
# From a text to one that has to be refused.
Break = Callable[[str], str]


class Found(NamedTuple):
    """A finding's code, or FAILED, its file, and its line in that file if the format has one."""

    code: str
    path: str
    line: int | None


class Refused(Exception):
    """A reader does not take the text; the message says why."""


def lines(path: Path) -> list[str]:
    """The lines of a file without their ends, counted as editors do."""
    return path.read_bytes().decode("utf-8", "replace").replace("\r\n", "\n").split("\n")


def expect_line(directory: Path, path: str, line: int) -> None:
    """Refuse a place that is not in a file below ``directory``."""
    if (
        not (directory / path).is_file()
        or path != Path(path).as_posix()
        or Path(path).is_absolute()
    ):
        raise Refused(f"no file: {path}")
    if not 1 <= line <= len(lines(directory / path)):
        raise Refused(f"no line {line} in {path}")
