"""Imports that fail on a release of PyTorch that the code is meant for."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from fsdplint.engine import ir
from fsdplint.engine.facts.caught import handles
from fsdplint.engine.program import Program
from fsdplint.engine.site import Site
from fsdplint.engine.tree import Tree
from fsdplint.engine.unit import Unit
from fsdplint.knowledge.moved import CAME, Moved, moved
from fsdplint.torch_range import EARLIEST, EVERY_RELEASE, Release

_PLAIN = re.compile(r"import[ \t]+(torch\.[\w.]+)")
_EXPECTED = ("ModuleNotFoundError", "AttributeError")
_CATCHES = re.compile(
    r"\bexcept\s*:|\bexcept\b[^:\r\n]*(?:ImportError|ModuleNotFoundError|Exception)|\bsuppress\("
)
_CHOICE = re.compile(r"version|torch|TYPE_CHECKING|hasattr|find_spec|available", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class FailingImport:
    """An import statement with a name that some release lacks.

    Attributes:
        name: the full name.
        gone: what became of it, None if it is not there yet.
        since: the first release that has it.
        before: the module that has it in the releases before, "" for none.
        fatal: nothing catches its error, so that no program runs that comes here.
    """

    site: Site
    name: str
    gone: Moved | None
    since: Release = EARLIEST
    before: str = ""
    fatal: bool = False


Importing = ir.Import | ir.ImportFrom


def failing_imports(program: Program) -> Iterator[FailingImport]:
    """One for each statement, the first of its names."""
    catches = any(_CATCHES.search(unit.text) for unit in program.units)
    for unit in program.units:
        known = any(map(_is_known, _bound(unit)))
        if known and program.project.unit(Path(unit.path)) is not None:
            tree = program.tree(unit.path)
            for statement in tree.imports:
                found = next(_failing(program, unit, statement), None)
                if found is not None and not _is_choice(tree, statement):
                    plain = statement in tree.module.body
                    yield replace(found, fatal=plain and not catches)


def _bound(unit: Unit) -> Iterator[str]:
    """What the file imports, `import a.b` included, whose variable is bound to `a` only."""
    yield from _PLAIN.findall(unit.text)
    for module, level, member in unit.bindings.values():
        if not level:
            yield f"{module}.{member}" if member else module


def _is_known(name: str) -> bool:
    return name in CAME or moved(name) is not None


def names_of(statement: Importing) -> list[str]:
    """The full names that a statement imports."""
    if isinstance(statement, ir.Import):
        return [name for name, _ in statement.names]
    if statement.level:
        return []
    return [f"{statement.module}.{name}" for name, _ in statement.names]


def _failing(program: Program, unit: Unit, statement: Importing) -> Iterator[FailingImport]:
    site = Site(unit.path, statement)
    for name in names_of(statement):
        gone = moved(name)
        if gone is not None and program.torch.concerns(lower=gone.gone):
            yield FailingImport(site, name, gone)
        elif name in CAME and _is_early(program, CAME[name][0]):
            since, before = CAME[name]
            yield FailingImport(site, name, None, since, before)


def _is_early(program: Program, since: Release) -> bool:
    """Whether a release is meant that FSDP2 is in at all, but the name is not."""
    return program.torch != EVERY_RELEASE and program.torch.overlaps((2, 4, 0), since)


def _is_choice(tree: Tree, statement: Importing) -> bool:
    """Whether the code knows that the import may fail, or chooses it by the release."""
    if any(handles(tree, statement, error) for error in _EXPECTED):
        return True
    around = list(tree.ancestors(statement))
    tests = [tree.slice(node.test) for node in around if isinstance(node, ir.If)]
    entered = [item for node in around if isinstance(node, ir.With) for item in node.items]
    if any("suppress" in tree.slice(item) for item in entered):
        return True
    return any(isinstance(n, ir.Handler) for n in around) or any(map(_CHOICE.search, tests))
