"""The project's files as one program: which file an import means, and which definitions matter.

Files are found and lowered when they are first needed. `torch` and the standard library are always
library symbols, even when they lie below the root.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fsdplint.engine import ir
from fsdplint.engine.imports import Binding, imported_bindings
from fsdplint.knowledge.calls import SHARDING_CALLS, SHARDING_SETTINGS
from fsdplint.knowledge.names import canonical
from fsdplint.source.invalid import InvalidSyntax, TooDemanding
from fsdplint.torch_range import EVERY_RELEASE, TorchRange

# Calls that shard, and settings by which a library does.
_SHARDS = SHARDING_SETTINGS.union(SHARDING_CALLS)

# `test_training.py` and `training_test.py`, as pytest calls its files, and folders such as `tests`,
# `unit_tests` and `testing`.
_TEST = re.compile(r"^(?:unit)?test|_test(?:s|ing)?(?:\.\w+)?$")

Reader = Callable[[Path], "str | None"]


@dataclass(frozen=True, slots=True)
class TopLevel:
    """The statements of a module that is imported: those that run at once, in order, and those that
    wait until the name that they bind is read."""

    at_once: tuple[ir.Stmt, ...]
    waiting: Mapping[str, ir.Stmt]


@dataclass(slots=True, eq=False)
class Definition:
    """A function, a class with its methods, or a variable of a module (a table of functions, say).

    ``hot`` when running or calling it may reach a sharding call, ``entry`` when it surely can.
    """

    unit: Unit
    node: ir.FunctionDef | ir.ClassDef | ir.Assign
    owner: Definition | None
    names: frozenset[str]
    attributes: frozenset[str]
    methods: dict[str, Definition] = field(default_factory=dict)
    hot: bool = False
    entry: bool = False

    @property
    def name(self) -> str:
        node = self.node
        if isinstance(node, ir.Assign):
            target = node.targets[0]
            return target.id if isinstance(target, ir.Name) else ""
        return node.function.name if isinstance(node, ir.FunctionDef) else node.name


@dataclass(slots=True, eq=False)
class Unit:
    """One file of the program.

    Attributes:
        bindings: names bound by imports anywhere in the file: (module, level, name or None).
        definitions: functions and classes at the top level, nested in ``if`` and ``try`` too.
        calls_forward: some module's ``.forward`` is read, other than ``super()``'s.
        counters: attributes that some statement of the file counts up or down.
        registers: a decorated function shards, so that importing the file may register it.
    """

    path: str
    directory: Path
    text: str
    module: ir.Module
    bindings: dict[str, Binding]
    definitions: dict[str, Definition] = field(default_factory=dict)
    calls_forward: bool = False
    registers: bool = False
    counters: set[str] = field(default_factory=set)


class Project:
    """Files below ``root``, lowered on demand.

    Attributes:
        root: no import is resolved to a file outside it.
        torch: the releases of PyTorch that it is meant to run on.
        failures: files that could not be lowered, with the error.
        overlong: those of the exhausted entries with a path longer than the budget of one path.
        unread: files that would take too much, with the reason.
        crashes: files that the engine failed on, with its error.
        exhausted: entries not followed to the end, by file and name, with the budget that ended it.
    """

    def __init__(self, root: Path, read: Reader, torch: TorchRange = EVERY_RELEASE) -> None:
        self.root = root
        self.read = read
        self.torch = torch
        self.units: dict[str, Unit | None] = {}
        self.found: dict[tuple[str, int, Path], Path | None] = {}
        self.failures: dict[str, InvalidSyntax] = {}
        self.imported: dict[Path, dict[str, Binding]] = {}
        self.keys: dict[object, int] = {}
        self.top_levels: dict[Unit, TopLevel] = {}
        self.exhausted: dict[tuple[str, str], str] = {}
        self.unread: dict[str, str] = {}
        self.crashes: dict[str, Exception] = {}
        self.overlong: set[tuple[str, str]] = set()

    def is_test(self, path: str) -> bool:
        """Whether a file is a test or belongs to some, by its name or that of a folder it is in."""
        return any(map(_TEST.search, Path(path).relative_to(self.root).parts))

    def unit(self, path: Path) -> Unit | None:
        """The unit of a file, or None if it cannot be read or is not Python."""
        key = path.as_posix()
        if key not in self.units:
            self.units[key] = None  # while it is being loaded
            text = self.read(path)
            if text is not None:
                self.units[key] = self._load(key, text)
        return self.units[key]

    def _load(self, path: str, text: str) -> Unit | None:
        from fsdplint.engine.lower import lower  # LibCST, which takes as long as all the rest

        try:
            module = lower(text, path)
        except InvalidSyntax as error:
            self.failures[path] = error
            return None
        except TooDemanding as error:
            self.unread[path] = error.message
            return None
        except Exception as error:  # a fault of the engine's costs no other file
            self.crashes[path] = error
            return None
        unit = Unit(path, Path(path).parent, text, module, self.bindings(Path(path)))
        _index(unit)
        return unit

    def find(self, module: str, level: int, importer: Unit | Path) -> Path | None:
        """The file a module name means in ``importer`` (or its directory), None for a library."""
        top = module.split(".")[0]
        if not level and (top == "torch" or top in sys.stdlib_module_names):
            return None
        directory = importer if isinstance(importer, Path) else importer.directory
        key = (module, level, directory)
        if key not in self.found:
            self.found[key] = self._search(module, level, directory)
        return self.found[key]

    def _search(self, module: str, level: int, directory: Path) -> Path | None:
        parts = module.split(".") if module else []
        if level:
            base = directory
            for _ in range(level - 1):
                base = base.parent
            return self._below_root(_module_file(base.joinpath(*parts)))
        for base in self._bases(directory):
            found = self._below_root(_module_file(base.joinpath(*parts)))
            if found is not None:
                return found
        return None

    def _below_root(self, found: Path | None) -> Path | None:
        return found if found is not None and self.root in found.parents else None

    def _bases(self, directory: Path) -> Iterator[Path]:
        """Where absolute imports start: the importer's directory and those above it, then src."""
        current = directory
        while True:
            yield current
            if current == self.root or current.parent == current:
                break
            current = current.parent
        yield self.root / "src"

    def refers_to_sharding(self, path: Path, name: str, depth: int = 0) -> bool:
        """Whether a name in a file is one of PyTorch's sharding calls, imported or passed on."""
        module, level, member = self.bindings(path).get(name, ("", 0, None))
        if member is None or depth > 6:
            return False
        if not level and canonical(f"{module}.{member}") in _SHARDS:
            return True
        found = self.find(module, level, path.parent)
        return found is not None and self.refers_to_sharding(found, member, depth + 1)

    def bindings(self, path: Path) -> dict[str, Binding]:
        """The names that a file's imports bind, read off its text."""
        if path not in self.imported:
            self.imported[path] = imported_bindings(self.read(path) or "")
        return self.imported[path]

    def loaded_definition(self, unit: Unit, name: str) -> Definition | None:
        """The function or class a name means, among the files that are lowered already."""
        for _ in range(6):
            if name in unit.definitions:
                return unit.definitions[name]
            module, level, member = unit.bindings.get(name, ("", 0, None))
            found = None if member is None else self.find(module, level, unit)
            target = None if found is None else self.units.get(found.as_posix())
            if target is None or member is None:
                return None
            unit, name = target, member
        return None


def _module_file(base: Path) -> Path | None:
    package = base / "__init__.py"
    if base.name and _is_file(base.with_name(base.name + ".py")):
        return base.with_name(base.name + ".py")
    return package if _is_file(package) else None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name too long for any file
        return False


def _index(unit: Unit) -> None:
    for node in ir.walk(unit.module):
        if isinstance(node, ir.AugAssign) and isinstance(node.target, ir.Attribute):
            unit.counters.add(node.target.attr)
        elif isinstance(node, ir.Attribute) and node.attr == "forward":
            unit.calls_forward |= not _is_super(node.value)
    for node in _top_level(unit.module.body):
        definition = _define(unit, node, None)
        unit.definitions[definition.name] = definition
    for statement in unit.module.body:
        if isinstance(statement, ir.Assign) and isinstance(statement.targets[0], ir.Name):
            variable = Definition(unit, statement, None, *identifiers(statement.value))
            unit.definitions.setdefault(variable.name, variable)


def _is_super(node: ir.Expr) -> bool:
    return isinstance(node, ir.Call) and isinstance(node.func, ir.Name) and node.func.id == "super"


def _top_level(body: Iterable[ir.Stmt]) -> Iterator[ir.FunctionDef | ir.ClassDef]:
    for node in body:
        if isinstance(node, (ir.FunctionDef, ir.ClassDef)):
            yield node
        elif isinstance(node, ir.If):
            yield from _top_level((*node.body, *node.orelse))
        elif isinstance(node, ir.Try):
            handlers = [stmt for handler in node.handlers for stmt in handler.body]
            yield from _top_level((*node.body, *handlers, *node.orelse))


def _define(unit: Unit, node: ir.FunctionDef | ir.ClassDef, owner: Definition | None) -> Definition:
    names, attributes = identifiers(node)
    definition = Definition(unit, node, owner, names, attributes)
    if isinstance(node, ir.ClassDef):
        for inner in _top_level(node.body):
            method = _define(unit, inner, definition)
            definition.methods[method.name] = method
    return definition


def identifiers(*nodes: ir.Node) -> tuple[frozenset[str], frozenset[str]]:
    """The names and the attribute names that occur below ``nodes``."""
    names, attributes = set(), set()
    for root in nodes:
        for node in ir.walk(root):
            if isinstance(node, ir.Name):
                names.add(node.id)
            elif isinstance(node, ir.Attribute):
                attributes.add(node.attr)
    return frozenset(names), frozenset(attributes)
