"""Run a notebook's cells one after the other as ``__main__``, as a kernel does.

Each cell has its own file name, so that places and tracebacks lead to it. IPython's own syntax
does nothing, except that scripts which cells write are written before the first cell.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import linecache
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType

from fsdplint.files.file import load
from fsdplint.files.notebook import Cell
from fsdplint.verify.notebook import NOTEBOOK as SUFFIX
from fsdplint.verify.notebook import path_of_cell

__all__ = ["SUFFIX", "run"]


def run(path: Path) -> None:
    """Run the notebook at `path`.

    Raises:
        SourceError: it is not a notebook.
    """
    source = load(path)
    assert source.notebook is not None
    main = sys.modules["__main__"] = ModuleType("__main__")
    vars(main)["display"] = print
    for name, text in _scripts(source.notebook.cells).items():
        _write(Path(name), text)
    for cell in source.notebook.cells:
        if cell.script or cell.appended:
            continue
        awaited = eval(_compiled(cell, path), vars(main))
        if inspect.iscoroutine(awaited):
            asyncio.run(awaited)


def _scripts(cells: Sequence[Cell]) -> dict[str, str]:
    """Return the scripts that cells write, as they are at the end: ranks run apart, and would
    overwrite each other's with what they were before."""
    pieces: dict[str, list[str | None]] = {}
    for cell in cells:
        if cell.script:
            pieces[cell.script] = [cell.body]
        elif cell.appended:
            pieces.setdefault(cell.appended, [None]).append(cell.body)
    return {name: _text(Path(name), found) for name, found in pieces.items()}


def _text(script: Path, pieces: list[str | None]) -> str:
    """Return a script's text; None stands for what is there, to which another rank may have added
    the rest."""
    written = "".join(piece for piece in pieces if piece is not None)
    there = script.read_text("utf-8") if None in pieces and script.exists() else ""
    return there.removesuffix(written) + written


def _compiled(cell: Cell, path: Path) -> CodeType:
    """Compile a cell and register its lines for tracebacks and ``inspect``."""
    name = path_of_cell(path, cell.number)
    linecache.cache[name] = (len(cell.code), None, cell.code.splitlines(keepends=True), name)
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    code: CodeType = compile(cell.code, name, "exec", flags, dont_inherit=True)
    return code


def _write(script: Path, text: str) -> None:
    """Write a script whole, since other ranks write the same one and may be reading it."""
    script.parent.mkdir(parents=True, exist_ok=True)
    new = script.with_name(f"{script.name}.{os.getpid()}")
    new.write_text(text, "utf-8")
    new.replace(script)
