"""`LightningModule`s that a trainer fits, and their method that shards them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fsdplint.engine import ir
from fsdplint.finding import Edit
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import dotted
from fsdplint.knowledge.lightning_settings import (
    ACCUMULATES,
    CONFIGURES,
    STARTS_BATCH,
    STEPS,
    WRAPS,
    is_lightning_module,
)
from fsdplint.knowledge.names import FSDP2_MODULE, REGISTER_FORWARD
from fsdplint.migrate.fsdp2.lightning.sharding import Conversion, laid_out
from fsdplint.migrate.fsdp2.units import helper
from fsdplint.migrate.helpers import SHARD_BY_POLICY
from fsdplint.migrate.step import Context

_BY_ITSELF = re.compile(r"automatic_optimization\s*=\s*False")


@dataclass(frozen=True, slots=True)
class Module:
    """The class of a `LightningModule`."""

    code: Code
    node: ir.ClassDef

    def method(self, name: str) -> ir.FunctionDef | None:
        """Return a method that the class itself has."""
        methods = (each for each in self.node.body if isinstance(each, ir.FunctionDef))
        return next((each for each in methods if each.function.name == name), None)


def modules(context: Context) -> list[Module]:
    """Return the classes of modules that the others of the program are derived from.

    Those that override the method which shards are among them.
    """
    known = every_module(context)
    names = {(each.code.path, each.node.name) for each in known}
    return [
        each
        for each in known
        if names.isdisjoint(_bases(context, each)) or each.method(CONFIGURES) is not None
    ]


def every_module(context: Context) -> list[Module]:
    """Return the classes of all modules in the program."""
    known: list[Module] = []
    classes = [
        Module(code, node)
        for code in context.codes("class ")
        for node in ir.walk(code.module)
        if isinstance(node, ir.ClassDef)
    ]
    found = True
    while found:
        names = {(each.code.path, each.node.name) for each in known}
        fresh = [each for each in classes if each not in known and _is_module(context, each, names)]
        known += fresh
        found = bool(fresh)
    return known


def _is_module(context: Context, module: Module, known: set[tuple[str, str]]) -> bool:
    named = (context.name(module.code, base) for base in module.node.bases)
    return any(map(is_lightning_module, named)) or not known.isdisjoint(_bases(context, module))


def _bases(context: Context, module: Module) -> Iterator[tuple[str, str]]:
    """Yield the file and the name of each base that the project defines."""
    project = context.program.project
    unit = project.unit(Path(module.code.path))
    for base in module.node.bases:
        name = dotted(base) or ""
        found = project.definition(unit, name) if unit is not None else None
        if found is not None:
            yield found.unit.path, found.name


def sharded(module: Module, conversion: Conversion) -> list[Edit]:
    """Return the edits that have a module shard itself; none if it does so already.

    Raises:
        NoFixError: the module does something that this may not go with.
    """
    code, node, unit = module.code, module.node, module.code.unit
    text = code.slice(node)
    existing = module.method(CONFIGURES)
    inner = code.indentation(node) + unit
    if _BY_ITSELF.search(text):
        raise NoFixError(
            f"`{node.name}` optimizes by itself, which fails with FSDP1; shard it by hand"
        )
    body = "".join(laid_out(code, _lines(conversion), inner + unit))
    if existing is not None and body in text:
        return []
    if WRAPS.search(text) and (existing is None or not _is_plain(code, existing)):
        raise NoFixError(f"`{node.name}` wraps or shards parts of itself; shard it by hand")
    edits = [_helper(code, node, conversion)] if conversion.made.units.policy else []
    if existing is not None:
        return [*filter(None, edits), code.insert_lines(code.after(existing), body)]
    method = f"{inner}def {CONFIGURES}(self):{code.newline}{body}"
    at, lines = _place(module, method)
    return [*filter(None, edits), code.insert_lines(at, lines)]


def accumulating(context: Context, module: Module, imports: Imports) -> list[Edit]:
    """Return the edits that reduce gradients once for all batches that are accumulated.

    A trainer does that only for FSDP1, by its `no_sync`.

    Raises:
        NoFixError: the module already does something before each batch.
    """
    code, node, unit = module.code, module.node, module.code.unit
    lines = [
        f"if isinstance(self, {imports.name(*FSDP2_MODULE.rsplit('.', 1))}):",
        f"{unit}done = (batch_idx + 1) % self.trainer.{ACCUMULATES} == 0",
        f"{unit}self.set_requires_gradient_sync(done or self.trainer.is_last_batch)",
    ]
    inner = code.indentation(node) + unit
    body = "".join(laid_out(code, iter(lines), inner + unit))
    if body in code.slice(node):
        return []
    for each in every_module(context):
        if each.method(STARTS_BATCH) is not None:
            raise NoFixError(
                f"it accumulates gradients, and `{each.node.name}` has `{STARTS_BATCH}`; call "
                "`set_requires_gradient_sync` there by hand"
            )
    head = f"{inner}def {STARTS_BATCH}(self, batch, batch_idx):{code.newline}"
    at, text = _place(module, f"{head}{body}")
    return [code.insert_lines(at, text)]


def _lines(conversion: Conversion) -> Iterator[str]:
    imports, unit = conversion.moved.imports, conversion.moved.imports.code.unit
    sharded_by_now = imports.name(*FSDP2_MODULE.rsplit(".", 1))
    register = imports.name(*REGISTER_FORWARD.rsplit(".", 1))
    yield "# The trainer calls this again before it validates, tests or predicts."
    yield f"if self.device_mesh is None or isinstance(self, {sharded_by_now}):"
    yield f"{unit}return"
    yield from conversion.lines()
    steps = ", ".join(f'"{each}"' for each in STEPS)
    yield f"for step in ({steps}):"
    yield f"{unit}{register}(self, step)"


def _is_plain(code: Code, method: ir.FunctionDef) -> bool:
    """Return whether lines at the end of a method always run, and it shards nothing."""
    body = code.slice(method).partition(":")[2]
    leaves = any(isinstance(each, (ir.Return, ir.Raise)) for each in ir.walk(method.function))
    return not leaves and not WRAPS.search(body)


def _place(module: Module, method: str) -> tuple[int, str]:
    """Return where a method goes, after the constructor or before all, with blank lines."""
    code, body = module.code, module.node.body
    constructor = module.method("__init__")
    if constructor is not None:
        return code.after(constructor), f"{code.newline}{method}"
    functions = [each for each in body if isinstance(each, ir.FunctionDef)]
    if functions:
        return code.extent(functions[0])[0], f"{method}{code.newline}"
    return code.after(body[-1]), f"{code.newline}{method}"


def _helper(code: Code, node: ir.ClassDef, conversion: Conversion) -> Edit | None:
    """Return the edit that defines the function which asks a policy at run time."""
    if f"def {SHARD_BY_POLICY}(" in code.text:
        return None
    lines = helper(code, conversion.moved.imports)
    top = next(each for each in code.module.body if each.end >= node.end)
    return code.insert_lines(code.extent(top)[0], lines)
