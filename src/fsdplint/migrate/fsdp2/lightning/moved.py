"""Expressions that move to another function or file, with the imports that they need."""

from __future__ import annotations

import builtins
from dataclasses import dataclass
from pathlib import Path

from fsdplint.engine import ir
from fsdplint.engine.project.relevance import imported_files
from fsdplint.engine.project.unit import Definition
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.imports import Imports, bindings
from fsdplint.fixes.names import bound_by, dotted
from fsdplint.fixes.wrapping import joined
from fsdplint.migrate.calls import definition
from fsdplint.migrate.step import Context


@dataclass(frozen=True, slots=True)
class Moved:
    """Expressions of ``source``, in code that `imports` belong to.

    Attributes:
        imports: of the place of the new code, in a function or method of its own.
    """

    context: Context
    source: Code
    imports: Imports

    def text(self, value: ir.Expr) -> str:
        """Return the source of an expression that means the same in the new place.

        Raises:
            NoFixError: it depends on a variable that is not known there.
        """
        value = definition(self.source, value)
        if self.source.comments(value.start, value.end):
            raise NoFixError(f"a comment is in `{self.source.short(value)}`; move it by hand")
        own = {name for node in ir.walk(value) for name in bound_by(node)}
        names = [n for n in ir.walk(value) if isinstance(n, ir.Name) and n.id not in own]
        text = self.source.slice(value)
        for node in sorted(names, key=lambda each: -each.start):
            at = node.start - value.start
            text = f"{text[:at]}{self._name(node)}{text[at + len(node.id) :]}"
        return joined(text)

    def _name(self, node: ir.Name) -> str:
        """Return what a name is called in the new place."""
        source, target = self.source, self.imports.code
        found = definition(source, node)
        if found is not node:
            text = self.text(found)
            return text if dotted(found) or isinstance(found, ir.Constant) else f"({text})"
        defined = self._definition(source, node.id)
        if defined is not None:
            return self._visible(node.id, defined)
        imported = next((each for each in bindings(source) if each.root[0] == node.id), None)
        if imported is not None and isinstance(imported.statement, ir.ImportFrom):
            return self.imports.name(*imported.target.rsplit(".", 1))
        if imported is not None:
            return self.imports.module(imported.root[1], imported.root[0])
        if node.id in vars(builtins):
            return node.id
        if source is target and source.function(node) is None:
            return node.id
        raise NoFixError(
            f"`{node.id}` is not known in `{Path(target.path).name}`, where the model is sharded; "
            "shard it by hand"
        )

    def _definition(self, code: Code, name: str) -> Definition | None:
        project = self.context.program.project
        unit = project.unit(Path(code.path))
        return project.definition(unit, name) if unit is not None else None

    def _visible(self, name: str, defined: Definition) -> str:
        """Return the name in the target of what the project defines."""
        project, target = self.context.program.project, self.imports.code
        if defined.unit.path == target.path:
            return defined.name
        for each in (name, *project.imports(Path(target.path)).bindings):
            if self._definition(target, each) is defined:
                return each
        for binding in bindings(self.source):
            if binding.root[0] == name and isinstance(binding.statement, ir.ImportFrom):
                if self._imports(Path(defined.unit.path), Path(target.path)):
                    break
                return self.imports.name(*binding.target.rsplit(".", 1))
        raise NoFixError(
            f"`{name}` is not imported in `{Path(target.path).name}`, where the model is sharded; "
            "import it there by hand"
        )

    def _imports(self, file: Path, other: Path) -> bool:
        """Return whether a file imports another one, directly or through others."""
        project, found = self.context.program.project, [file]
        for path in found:
            found += [each for each in imported_files(project, path) if each not in found]
        return other in found
