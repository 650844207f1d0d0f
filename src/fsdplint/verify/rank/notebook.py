"""Run a notebook's cells one after the other as ``__main__``, as a kernel does.

Each cell has a file name of its own, so that places and tracebacks lead to it. What is IPython's
own syntax does nothing, except that a cell which writes a script writes it.
"""

from __future__ import annotations

import linecache
import os
import sys
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
        SourceError: it is no notebook.
    """
    source = load(path)
    assert source.notebook is not None
    main = sys.modules["__main__"] = ModuleType("__main__")
    scripts: dict[str, str] = {}
    for cell in source.notebook.cells:
        if name := cell.script or cell.appended:
            scripts[name] = scripts.get(name, "") * bool(cell.appended) + cell.body
            _write(Path(name), scripts[name])
        else:
            exec(_compiled(cell, path), vars(main))


def _compiled(cell: Cell, path: Path) -> CodeType:
    """Compile a cell, and let tracebacks and ``inspect`` find its lines."""
    name = path_of_cell(path, cell.number)
    linecache.cache[name] = (len(cell.code), None, cell.code.splitlines(keepends=True), name)
    return compile(cell.code, name, "exec")


def _write(script: Path, text: str) -> None:
    """Write a script whole, since other ranks write the same one and may be reading it."""
    script.parent.mkdir(parents=True, exist_ok=True)
    new = script.with_name(f"{script.name}.{os.getpid()}")
    new.write_text(text, "utf-8")
    new.replace(script)
