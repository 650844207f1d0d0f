"""Imports that a fix needs, and imports that it leaves unused."""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.files.lexing import NEWLINE
from fsdplint.finding import Edit
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.edits import apply, overlap
from fsdplint.fixes.names import binders, dotted
from fsdplint.fixes.wrapping import WIDTH
from fsdplint.knowledge.names import canonical

# Packages whose import has no effect that a program could miss.
_WITHOUT_EFFECT = sys.stdlib_module_names | {"torch"}


@dataclass(frozen=True, slots=True)
class Binding:
    """A ``name`` that an import statement binds to ``target``."""

    name: str
    target: str
    statement: ir.Import | ir.ImportFrom

    @property
    def root(self) -> tuple[str, str]:
        """The variable that is bound and its target: for ``import a.b`` it is ``a``."""
        plain = isinstance(self.statement, ir.Import) and self.name == self.target
        return (self.name.split(".")[0],) * 2 if plain else (self.name, self.target)


def bindings(code: Code) -> Iterator[Binding]:
    """Yield every name that an import in the file binds, except relative and star imports."""
    for node in code.imports:
        for name, alias in node.names:
            if isinstance(node, ir.Import):
                yield Binding(alias or name, name, node)
            elif node.level == 0:
                yield Binding(alias or name, f"{node.module}.{name}", node)


def qualified(code: Code, node: ir.Node) -> str | None:
    """Return the full name of ``node``, such as ``nullcontext``, by the file's imports."""
    text = code.slice(node)
    for binding in bindings(code):
        if text == binding.name or text.startswith(binding.name + "."):
            return binding.target + text.removeprefix(binding.name)
    return None


def resolved(code: Code, node: ir.Node) -> str | None:
    """Return as `qualified` if nothing else binds the variable, or a builtin if nothing does."""
    path = dotted(node)
    if path is None:
        return None
    root = path.split(".")[0]
    meanings = _meanings(code, node, root)
    if not meanings and path == root and hasattr(builtins, root):
        return f"builtins.{root}"
    found = {b.root[1] for b in bindings(code) if b.root[0] == root}
    return qualified(code, node) if len(meanings) == 1 and meanings == found else None


class Imports:
    """Collect the names that a fix uses at ``use``, and return the edits that import them."""

    def __init__(self, code: Code, use: ir.Node) -> None:
        self.code = code
        self.use = use
        self.wanted: dict[str, list[str]] = {}
        self.modules: dict[str, str] = {}

    def name(self, module: str, name: str) -> str:
        """Return the text for ``module.name``, imported under its name if nothing binds it yet.

        Raises:
            NoFixError: the file uses the name for something else.
        """
        existing = self._visible(f"{module}.{name}", same=canonical)
        base = self._visible(module)
        if existing is not None or base is not None:
            return existing or f"{base}.{name}"
        self._check_free(name, f"{module}.{name}")
        names = self.wanted.setdefault(module, [])
        if name not in names:
            names.append(name)
        return name

    def module(self, module: str, alias: str) -> str:
        """Return the text for ``module``, imported as ``alias`` if nothing binds it yet.

        Raises:
            NoFixError: the file uses the alias for something else.
        """
        existing = self._visible(module) or self._written_out(module)
        if existing is None:
            self._check_free(alias, module)
            self.modules[module] = alias
        return existing or alias

    def bound(self, module: str) -> str | None:
        """Return the name that an existing import binds to ``module``."""
        return self._visible(module)

    def builtin(self, name: str) -> str:
        """Return ``name``, if it is the builtin.

        Raises:
            NoFixError: the file uses the name for something else.
        """
        self._check_free(name, f"builtins.{name}")
        return name

    def _check_free(self, name: str, target: str) -> None:
        meanings = set(map(canonical, _meanings(self.code, self.use, name)))
        if meanings - {canonical(target)}:
            raise NoFixError(f"`{name}` means something else in this file; make the change by hand")

    def _visible(self, target: str, same: Callable[[str], str] = str) -> str | None:
        """Return the name that is bound to ``target``, or to what is the ``same``.

        Only a name may be imported from elsewhere: an older module has not all names of a newer.
        """
        for binding in bindings(self.code):
            variable, meaning = binding.root
            if (
                same(binding.target) == same(target)
                and self._reaches(binding.statement)
                and set(map(same, _meanings(self.code, self.use, variable))) == {same(meaning)}
            ):
                return binding.name
        return None

    def _written_out(self, module: str) -> str | None:
        """Return ``torch.distributed`` if the file uses it after only ``import torch``."""
        root = module.split(".")[0]
        attributes = (n for n in ir.walk(self.code.module) if isinstance(n, ir.Attribute))
        used = any(self.code.slice(node) == module for node in attributes)
        return module if used and self._visible(root) == root else None

    def _reaches(self, statement: ir.Stmt) -> bool:
        """True if ``statement`` has always run before the code at ``use`` runs."""
        owner = self.code.parent(statement)
        if isinstance(owner, ir.Module) and self.code.function(self.use) is not None:
            return True
        plain = isinstance(owner, (ir.Module, ir.Function))
        before = statement.start < self.use.start
        return plain and before and owner in self.code.ancestors(self.use)

    def edits(self) -> list[Edit]:
        """Return the edits that add the imports, each next to similar ones."""
        lines: dict[int, list[str]] = {}
        edits = []
        for module, alias in self.modules.items():
            line = f"import {module}" + (f" as {alias}" if alias != module else "")
            lines.setdefault(_place(self.code, self.use, module), []).append(line)
        for module, names in self.wanted.items():
            extended = self._extended(module, names)
            if extended is not None:
                edits.append(extended)
                continue
            line = f"from {module} import {', '.join(sorted(names))}"
            lines.setdefault(_place(self.code, self.use, module), []).append(line)
        return edits + [self._inserted(at, added) for at, added in lines.items()]

    def _inserted(self, at: int, lines: Sequence[str]) -> Edit:
        newline = self.code.newline
        own = _own_imports(self.code, self.use)
        if own and own[0].start < at:
            indent = self.code.indentation(own[0])
            return self.code.insert_lines(at, "".join(indent + line + newline for line in lines))
        text = "".join(line + newline for line in lines)
        following = self.code.line(at).lstrip("\f")
        if at < self.use.start and following.startswith(("import ", "from ")):
            names = {line.split()[1].split(".")[0] for line in (lines[-1], following)}
            joined = any(self.code.line_end(each.end) == at for each in self.code.imports)
            apart = not joined and len(names & sys.stdlib_module_names) == 1
            text += newline if apart else ""
        if not any(_top_imports(self.code, self.use)):
            above = at > 0 and self.code.line(at - 1).strip()
            text = (newline if above else "") + text
            text += newline if self.code.line(at).strip() else ""
        return self.code.insert_lines(at, text)

    def _extended(self, module: str, names: Sequence[str]) -> Edit | None:
        for statement in _imports_beside(self.code, self.use, module):
            if (
                isinstance(statement, ir.ImportFrom)
                and statement.names
                and (statement.module, statement.level) == (module, 0)
                and (found := _extension(self.code, statement, names)) is not None
            ):
                return found
        return None


def together(every: Iterable[Imports]) -> list[Edit]:
    """Return the edits that add the names of ``every``, each name once in a file.

    If several functions need names, they are imported at the top level.
    """
    files: dict[str, list[Imports]] = {}
    for each in every:
        if each.wanted or each.modules:
            files.setdefault(each.code.path, []).append(each)
    return [edit for group in files.values() for edit in _united(group).edits()]


def _united(group: Sequence[Imports]) -> Imports:
    first = min(group, key=lambda each: each.use.start)
    code, use = first.code, first.use
    if len({code.function(each.use) for each in group}) > 1:
        outside = code.module.body
        use = next(each for each in outside if each.end >= first.use.start)
    united = Imports(code, use)
    for each in group:
        united.modules.update(each.modules)
        for module, names in each.wanted.items():
            known = united.wanted.setdefault(module, [])
            known += [name for name in names if name not in known]
    return united


def _top_imports(code: Code, use: ir.Node) -> Iterator[ir.Import | ir.ImportFrom]:
    """Yield the unconditional imports at the top level above the statement of ``use``."""
    yield from _imports_above(code.module.body, use)


def _imports_above(body: Iterable[ir.Stmt], use: ir.Node) -> Iterator[ir.Import | ir.ImportFrom]:
    for statement in body:
        if statement.end > use.start:
            return
        if isinstance(statement, (ir.Import, ir.ImportFrom)):
            yield statement


def _own_imports(code: Code, use: ir.Node) -> list[ir.Import | ir.ImportFrom]:
    """Return the imports of the function around ``use``."""
    function = code.function(use)
    return [] if function is None else list(_imports_above(function.body, use))


def _imports_beside(code: Code, use: ir.Node, module: str) -> list[ir.Import | ir.ImportFrom]:
    """Return the imports to put one of ``module`` next to: the function's if only they match.

    Such a function may run without the rest of its file, as a job does.
    """
    top, own = list(_top_imports(code, use)), _own_imports(code, use)
    root = module.split(".")[0]
    alike = [any(root in _roots(each) for each in imports) for imports in (top, own)]
    return own if alike == [False, True] else top


def _place(code: Code, use: ir.Node, module: str) -> int:
    """Return the place below the last import of the same package, or else the last import.

    A standard library import goes below the last of these, or else above all.
    """
    beside = _imports_beside(code, use, module)
    imports = [statement for statement in beside if code.ends_line(statement)]
    root = module.split(".")[0]
    like = [statement for statement in imports if root in _roots(statement)]
    if root in sys.stdlib_module_names and imports and not like:
        like = [each for each in imports if _roots(each) & sys.stdlib_module_names]
        if not like:
            return code.line_start(imports[0].start)
    if root in sys.stdlib_module_names and like:
        return _in_order(code, like, module)
    for statement in (like or imports)[-1:]:
        return code.line_end(statement.end)
    first = code.module.body[0]
    if isinstance(first, ir.Expression) and isinstance(first.value, ir.Constant):
        end = code.line_end(first.end)
        return end if code.line(end).strip() else code.line_end(end)
    return code.extent(first)[0]


def _in_order(code: Code, imports: Sequence[ir.Import | ir.ImportFrom], module: str) -> int:
    """Return the place of ``from module import …`` in imports if they are sorted, or below them."""
    for by_kind in (True, False):
        keys = [(by_kind and isinstance(s, ir.ImportFrom), _module(s)) for s in imports]
        if keys == sorted(keys):
            before = [s for s, key in zip(imports, keys, strict=True) if key < (by_kind, module)]
            if not before:
                return code.line_start(imports[0].start)
            return code.line_end(before[-1].end)
    return code.line_end(imports[-1].end)


def _module(statement: ir.Import | ir.ImportFrom) -> str:
    return statement.module if isinstance(statement, ir.ImportFrom) else statement.names[0][0]


def _roots(statement: ir.Import | ir.ImportFrom) -> set[str]:
    if isinstance(statement, ir.ImportFrom):
        return set() if statement.level else {statement.module.split(".")[0]}
    return {name.split(".")[0] for name, _ in statement.names}


def _extension(code: Code, statement: ir.ImportFrom, names: Sequence[str]) -> Edit | None:
    """Add ``names`` to an import that has room on its line, or one line for each name."""
    text = code.slice(statement)
    last_line = statement.start + max(text.rfind("\n"), text.rfind("\r"), 0)
    if code.comments(code.line_start(max(last_line - 1, statement.start)), statement.end):
        return None
    added = sorted(names)
    if not text.endswith(")"):
        tail = "".join(f", {name}" for name in added)
        fits = len(code.line(statement.start) + tail) <= WIDTH and "\\" not in text
        return code.edit(statement.end, statement.end, tail) if fits else None
    inner = text[:-1].rstrip().rstrip(",").rstrip()
    last = NEWLINE.split(inner)[-1]
    if last == inner:
        return None
    separator = "," + code.newline + last[: len(last) - len(last.lstrip())]
    at = statement.start + len(inner)
    return code.edit(at, at, "".join(separator + name for name in added))


def _meanings(code: Code, use: ir.Node, name: str) -> set[str]:
    """Return the targets of ``name`` in the scopes where the code at ``use`` looks it up.

    A binding that is not an import counts as "?".
    """
    imported: dict[ir.Node, str] = {}
    for binding in bindings(code):
        variable, meaning = binding.root
        if variable == name:
            imported[binding.statement] = meaning
    scopes = [a for a in code.ancestors(use) if isinstance(a, (ir.Module, ir.Function))]
    nodes = (node for scope in scopes for node in binders(code, scope).get(name, ()))
    return {imported.get(node, "?") for node in nodes}


def orphans(code: Code, name: str, edits: Sequence[Edit]) -> list[Edit]:
    """Return the edits that remove the import of ``name`` if ``edits`` leave it unused.

    Empty if the name is still in the text, even in a string, or if another file or a lookup may
    use it.
    """
    found = [binding for binding in bindings(code) if binding.name == name]
    if len(found) != 1 or code.path.endswith("__init__.py"):
        return []
    statement = found[0].statement
    if not isinstance(code.parent(statement), ir.Module) or not code.alone(statement):
        return []
    target = found[0].target
    if found[0].root != (name, target) or target.split(".")[0] not in _WITHOUT_EFFECT:
        return []  # `import a.b` binds `a`, which other code may use
    if code.looks_up_variables or not code.is_private():
        return []
    ways = dropped(code, found[0])
    free = [way for way in ways if not any(overlap(way, edit) for edit in edits)]
    if not free:
        return []
    rest = apply(code.text, [*edits, free[0]])
    written = re.search(rf"(?<!\.)\b{re.escape(name)}\b", rest)  # an attribute is another name
    return [] if written else free[:1]


def dropped(code: Code, binding: Binding) -> Iterator[Edit]:
    """Yield the edits that may remove an imported name, with the comma before or after it."""
    statement = binding.statement
    if len(statement.names) == 1:
        start, end = code.line_start(statement.start), code.line_end(statement.end)
        yield code.delete_lines(start, end)
        return
    imported = binding.target
    if isinstance(statement, ir.ImportFrom):
        imported = imported.rpartition(".")[2]
    alias = "" if imported == binding.name else rf"\s+as\s+{re.escape(binding.name)}"
    item = rf"\b{re.escape(imported)}{alias}\b"
    keyword = re.search(r"\bimport\b", code.slice(statement))
    offset = statement.start + (keyword.end() if keyword else 0)
    names = code.text[offset : statement.end]
    commented = code.comments(statement.start, statement.end)
    own_line = re.search(rf"^[ \t]*{item}[ \t]*,[ \t]*(?:\r\n|\r|\n)", names, re.MULTILINE)
    if commented and own_line is not None:
        yield code.edit(offset + own_line.start(), offset + own_line.end(), "")
    for pattern in (rf",[\s\\]*{item}", rf"{item}\s*,\s*"):
        match = re.search(pattern, names)
        if match is not None and not commented:
            yield code.edit(offset + match.start(), offset + match.end(), "")
