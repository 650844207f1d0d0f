"""Jupyter notebooks as scripts: how their cells are named, and what of them no rank runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from textwrap import shorten

from fsdplint.files.decoding import SourceError
from fsdplint.files.file import load
from fsdplint.files.notebook import Cell

NOTEBOOK = ".ipynb"
_MOST = 3
"""Lines that are shown."""
_LONGEST = 60
"""Their characters."""


def path_of_cell(path: Path, number: int) -> str:
    """Return what a cell is called in places and tracebacks, as `events.Place` reads it."""
    return f"{path}:cell {number}"


def not_run(path: Path) -> tuple[str, ...]:
    """Return a note on the lines that IPython would run and no rank does, if there are any.

    The body of a cell that is not Python counts with its first line.
    """
    try:
        notebook = load(path).notebook
    except SourceError:  # its ranks will say so
        return ()
    lines = [line for cell in (notebook.cells if notebook else ()) for line in _left_out(cell)]
    if not lines:
        return ()
    shown = ", ".join(f"`{shorten(line, _LONGEST)}`" for line in lines[:_MOST])
    more = len(lines) - _MOST
    rest = f" and {more} more" if more > 0 else ""
    return (f"IPython lines skipped: {shown}{rest}",)


def _left_out(cell: Cell) -> Iterator[str]:
    if cell.script or cell.appended:
        return
    for line, code in zip(cell.source.splitlines(), cell.code.splitlines(), strict=False):
        if line != code:
            yield line.strip()
            if line.lstrip().startswith("%%"):
                return
