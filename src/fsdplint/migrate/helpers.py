"""Functions that a migration defines in a file for its new code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

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
    at = code.extent(_below_imports(code.module.body))[0]
    above = code.text[:at].splitlines()[-2:]
    blank = "\n" * sum(1 for line in above if line.strip()) if above[-1:] else ""
    text = (blank + definition).replace("    ", code.unit).replace("\n", code.newline)
    yield code.insert_lines(at, text)


def _below_imports(body: Sequence[ir.Stmt]) -> ir.Stmt:
    """Return the first statement below the imports and the settings between them."""
    leading = list(takewhile(_is_quiet, body))
    imports = [n for n, each in enumerate(leading) if isinstance(each, (ir.Import, ir.ImportFrom))]
    below = body[imports[-1] + 1 :] if imports else body
    return next(each for each in below if not is_docstring(each))


def _is_quiet(statement: ir.Stmt) -> bool:
    """True for an import, and for what sets no variable, as ``os.environ["A"] = "1"``."""
    if isinstance(statement, ir.Assign):
        return not any(isinstance(target, ir.Name) for target in statement.targets)
    return isinstance(statement, (ir.Import, ir.ImportFrom, ir.Expression))


def defined_on_ranks(code: Code, name: str, definition: str) -> tuple[list[Edit], Imports]:
    """Define a function that calls ``torch`` and ``dist``, by the names that the file has for them.

    Functions of the file may import them themselves, by other names.
    """
    imports = Imports(code, code.module.body[-1])
    for alias, module in (("dist", DISTRIBUTED), ("torch", "torch")):
        if f"{alias}." in definition:
            definition = definition.replace(f"{alias}.", f"{imports.module(module, alias)}.")
    return list(defined(code, name, definition)), imports
