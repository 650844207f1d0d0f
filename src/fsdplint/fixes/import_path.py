"""Names imported from where they are now."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Code, require_exact
from fsdplint.fixes.declined import NoFixError, builder
from fsdplint.knowledge.moved import Moved, moved
from fsdplint.torch_range import EVERY_RELEASE, TorchRange


@builder
def import_from_new_path(code: Code, statement: ir.Node, torch: TorchRange, fatal: bool) -> Fix:
    """``from torch.distributed._tensor.debug import x`` to ``from torch.distributed.tensor.debug``.

    Names that stay where they are stay in a statement of their own.

    Args:
        fatal: no program goes on without the import; another way would be left otherwise.
    """
    require_exact(code)
    if not isinstance(statement, (ir.Import, ir.ImportFrom)):
        raise NoFixError("the import is no statement")
    if not code.alone(statement) or code.comments(statement.start, statement.end):
        raise NoFixError(f"`{code.short(statement)}` shares its lines with other things")
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
        raise NoFixError("the code says the whole path wherever it uses the module")
    new = _new(found, name, torch)
    edit = code.edit(statement.start, statement.end, f"import {new} as {alias}")
    return Fix(f"import `{new}`", Safety.SAFE if fatal else Safety.UNSAFE, (edit,))


def _new(found: Moved, name: str, torch: TorchRange) -> str:
    """The full name that ``name`` has now."""
    if not found.new:
        raise NoFixError(found.instead)
    if torch != EVERY_RELEASE and torch.overlaps(upper=found.since):
        raise NoFixError(f"releases that the code is meant for have no `{found.new}` yet")
    return found.new + name.removeprefix(found.old)


def _statements(names: dict[str, list[str]]) -> Iterator[str]:
    for module, members in names.items():
        if members:
            yield f"from {module} import {', '.join(members)}"
