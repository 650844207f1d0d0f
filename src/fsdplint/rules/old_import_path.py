"""Imports that fail on a release of PyTorch that the code targets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fsdplint.engine import ir
from fsdplint.engine.facts.branches import handles
from fsdplint.engine.frontend.tree import Tree
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.program import Program
from fsdplint.engine.project.unit import Unit
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.knowledge.moved_names import BEFORE, Moved, moved
from fsdplint.knowledge.torch_api import first_releases
from fsdplint.knowledge.torch_range import EARLIEST, EVERY_RELEASE, Release, TorchRange
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD703",
    summary="an import fails on a release of PyTorch that the code targets",
    severity=Severity.ERROR,
    fix=Safety.SAFE,
    since="0.1.0",
)


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
        gone: how it was moved or removed, None if it does not exist yet.
        since: the first release that has it.
        before: the module that has it in older releases, "" for none.
        fatal: nothing catches the error, so every run that reaches the import fails.
    """

    site: Site
    name: str
    gone: Moved | None
    since: Release = EARLIEST
    before: str = ""
    fatal: bool = False


Importing = ir.Import | ir.ImportFrom


def failing_imports(program: Program) -> Iterator[FailingImport]:
    """Yield the first failing name of each statement."""
    catches = any(_CATCHES.search(unit.text) for unit in program.units)
    for unit in program.units:
        suspect = any(moved(name) or _came_late(program, name) for name in _bound(unit))
        if suspect and program.project.unit(Path(unit.path)) is not None:
            tree = program.tree(unit.path)
            for statement in tree.imports:
                found = next(_failing(program, unit, statement), None)
                if found is not None and not _is_choice(tree, statement):
                    plain = statement in tree.module.body
                    yield replace(found, fatal=plain and not catches)


def _bound(unit: Unit) -> Iterator[str]:
    """Yield what the file imports, including `import a.b`, which binds only `a`."""
    yield from _PLAIN.findall(unit.text)
    for module, level, member in unit.bindings.values():
        if not level:
            yield f"{module}.{member}" if member else module


def names_of(statement: Importing) -> list[str]:
    """Return the full names that a statement imports."""
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
        elif since := _came_late(program, name):
            yield FailingImport(site, name, None, since, BEFORE.get(name, ""))


def _came_late(program: Program, name: str) -> Release | None:
    """Return the first release with a name if a targeted one has FSDP2, but not the name."""
    if program.torch == EVERY_RELEASE:
        return None
    since = first_releases().get(name)
    return since if since is not None and program.torch.overlaps((2, 4, 0), since) else None


def _is_choice(tree: Tree, statement: Importing) -> bool:
    """Whether the code expects the import to fail, or chooses it by the release."""
    if any(handles(tree, statement, error) for error in _EXPECTED):
        return True
    around = list(tree.ancestors(statement))
    tests = [tree.slice(node.test) for node in around if isinstance(node, ir.If)]
    entered = [item for node in around if isinstance(node, ir.With) for item in node.items]
    if any("suppress" in tree.slice(item) for item in entered):
        return True
    return any(isinstance(n, ir.Handler) for n in around) or any(map(_CHOICE.search, tests))


def reports(program: Program) -> Iterator[Report]:
    for fact in failing_imports(program):
        yield Report(
            program.span(fact.site),
            _message(fact, program.torch),
            "raises an ImportError",
            (),
            partial(_fix, program, fact),
        )


def _message(fact: FailingImport, torch: TorchRange) -> str:
    if fact.gone is None:
        admits = f"`{torch.source}` admits" if torch.source else "you target"
        return (
            f"`{fact.name}` does not exist before torch {_number(fact.since)}: the import fails on "
            f"the older releases that {admits}"
        )
    now = fact.gone.new and f"; use `{fact.gone.new}`"
    return (
        f"`{fact.gone.old}` does not exist in torch {_number(fact.gone.gone)} and later, so the "
        f"import fails{now}"
    )


def _number(release: Release) -> str:
    return f"{release[0]}.{release[1]}"


def _fix(program: Program, fact: FailingImport) -> Fix | Declined:
    if fact.gone is None:
        if not fact.before:
            return Declined("older releases do not have it; raise the minimum release by hand")
        return Declined(
            f"older releases have it in `{fact.before}` (since torch 2.4); import it from there by "
            "hand"
        )
    code = Code.of(program.tree(fact.site.path))
    return import_from_new_path(code, fact.site.node, program.torch, fact.fatal)


@builder
def import_from_new_path(code: Code, statement: ir.Node, torch: TorchRange, fatal: bool) -> Fix:
    """``from torch.distributed._tensor.debug import x`` to ``from torch.distributed.tensor.debug``.

    Names that did not move stay in a separate statement.

    Args:
        fatal: no run goes on without the import; otherwise a program may handle its failure.
    """
    if not isinstance(statement, (ir.Import, ir.ImportFrom)):
        raise NoFixError("this is not an import statement; change it by hand")
    if not code.alone(statement) or code.comments(statement.start, statement.end):
        raise NoFixError(
            f"`{code.short(statement)}` shares its lines with a comment or other code; change it "
            "by hand"
        )
    if isinstance(statement, ir.Import):
        return _module(code, statement, torch, fatal)
    kept: list[str] = []
    lines: dict[str, list[str]] = {}
    for name, alias in statement.names:
        found = moved(f"{statement.module}.{name}")
        if found is None or not torch.concerns(lower=found.gone):
            kept.append(name if alias is None else f"{name} as {alias}")
            continue
        full = _new(found, f"{statement.module}.{name}", torch)
        module, _, new = full.rpartition(".")
        bound = alias or name
        lines.setdefault(module, []).append(new if new == bound else f"{new} as {bound}")
    text = (code.newline + code.indentation(statement)).join(
        _statements({statement.module: kept, **lines})
    )
    edit = code.edit(statement.start, statement.end, text)
    safety = Safety.SAFE if fatal else Safety.UNSAFE
    return Fix(f"import from `{next(iter(lines))}`", safety, (edit,))


def _module(code: Code, statement: ir.Import, torch: TorchRange, fatal: bool) -> Fix:
    (name, alias), *others = statement.names
    found = moved(name)
    if found is None or alias is None or others:
        raise NoFixError("the code repeats the full path at each use; change all of them by hand")
    new = _new(found, name, torch)
    edit = code.edit(statement.start, statement.end, f"import {new} as {alias}")
    return Fix(f"import `{new}`", Safety.SAFE if fatal else Safety.UNSAFE, (edit,))


def _new(found: Moved, name: str, torch: TorchRange) -> str:
    """Return the current full name of ``name``."""
    if not found.new:
        raise NoFixError(found.instead)
    if torch != EVERY_RELEASE and torch.overlaps(upper=found.since):
        raise NoFixError(
            f"some releases that you target do not have `{found.new}` yet; import either path in a "
            "`try` by hand"
        )
    return found.new + name.removeprefix(found.old)


def _statements(names: dict[str, list[str]]) -> Iterator[str]:
    for module, members in names.items():
        if members:
            yield f"from {module} import {', '.join(members)}"
