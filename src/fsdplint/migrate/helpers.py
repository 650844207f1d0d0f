"""Functions that a migration defines in a file for its new code."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.finding import Edit
from fsdplint.fixes.code import Code, is_docstring
from fsdplint.fixes.imports import Imports
from fsdplint.knowledge.names import DISTRIBUTED

SHARD_BY_POLICY = "shard_by_policy"
"""It asks a wrap policy about each module, as FSDP1 does."""


def defined(code: Code, name: str, definition: str) -> Iterator[Edit]:
    """Define a function below the imports, once in a file.

    Args:
        definition: its source, with blank lines after it.
    """
    if any(function.name == name for function in code.functions):
        return
    quiet = (ir.Import, ir.ImportFrom)
    body = [s for s in code.module.body if not isinstance(s, quiet)]
    first = next(s for s in body if not is_docstring(s))
    at = code.extent(first)[0]
    above = code.text[:at].splitlines()[-2:]
    blank = "\n" * sum(1 for line in above if line.strip()) if above[-1:] else ""
    text = (blank + definition).replace("    ", code.unit).replace("\n", code.newline)
    yield code.insert_lines(at, text)


def defined_on_ranks(code: Code, name: str, definition: str) -> tuple[tuple[Edit, ...], Imports]:
    """Define a function that calls `torch.distributed` by its usual name ``dist``.

    Functions of the file may import it themselves, and by other names.
    """
    imports = Imports(code, code.module.body[-1])
    dist = imports.module(DISTRIBUTED, "dist")
    return tuple(defined(code, name, definition.replace("dist.", f"{dist}."))), imports
