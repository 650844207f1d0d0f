"""The project's files as one program: the files that imports resolve to, and their definitions.

Files are found and lowered when they are first needed. `torch` and the standard library are always
library symbols, even if they are below the root.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from fsdplint.engine import budget, ir
from fsdplint.engine.frontend.ir_cache import IRCache
from fsdplint.engine.frontend.lower import lower
from fsdplint.engine.project.decorators import keeps_nothing
from fsdplint.engine.project.exports import Exports, names_brought
from fsdplint.engine.project.imports import Binding, Imports, Shared, imports
from fsdplint.engine.project.launch_settings import LaunchSettings
from fsdplint.engine.project.module_finder import ModuleFinder
from fsdplint.engine.project.prefilter import mentions_sharding
from fsdplint.engine.project.unit import Definition, TopLevel, Unit
from fsdplint.files.invalid import InvalidSyntax, TooDemanding
from fsdplint.finding import EarlyStop
from fsdplint.knowledge.calls import SHARDING_CALLS, SHARDING_SETTINGS
from fsdplint.knowledge.frameworks import is_setting, sets_sharding, uses_launcher
from fsdplint.knowledge.launch import COMMAND_LINE_PACKAGES
from fsdplint.knowledge.names import canonical
from fsdplint.knowledge.torch_range import EVERY_RELEASE, TorchRange

# Calls that shard, and settings by which a library does.
_SHARDS = SHARDING_SETTINGS.union(SHARDING_CALLS)

# `test_training.py` and `training_test.py`, as pytest calls its files, and folders such as `tests`,
# `unit_tests` and `testing`.
_TEST = re.compile(r"^(?:unit)?test|_test(?:s|ing)?(?:\.\w+)?$")

Reader = Callable[[Path], "str | None"]
Getter = Callable[[Path], "Unit | None"]
BUILTINS = frozenset(dir(builtins))


class Project:
    """Files below ``root``, lowered on demand.

    Attributes:
        root: no import is resolved to a file outside it.
        torch: the releases of PyTorch that the project supports.
        ir_cache: the IR of files that were lowered before.
        is_plain: whether a file surely contains no name of a sharding call.
        launches: the settings of FSDP that its programs are launched with, as far as known.
        failures: files that could not be lowered, with the error.
        unread: files that are too demanding to parse, with the reason.
        crashes: files that the engine failed on, with its error.
        budget: how much of the program is followed.
        early_stops: where the budget was too small, or code of the project is missing.
        left_out: entries that need not be followed, by file and name, with the reason.
    """

    def __init__(
        self,
        root: Path,
        read: Reader,
        torch: TorchRange = EVERY_RELEASE,
        ir_cache: IRCache | None = None,
        is_plain: Callable[[Path], bool] = lambda _: False,
        launches: tuple[LaunchSettings, ...] = (),
    ) -> None:
        self.root = root
        self.launches = launches
        self.read = read
        self.is_plain = is_plain
        self.torch = torch
        self.ir_cache = ir_cache
        self.units: dict[str, Unit | None] = {}
        self.broken: set[str] = set()
        self.failures: dict[str, InvalidSyntax] = {}
        self.imported: dict[Path, Imports] = {}
        self.sharding: dict[Path, frozenset[str]] = {}
        self.own_sharding: dict[Path, frozenset[str]] = {}  # without those of star imports
        self.referring: dict[tuple[Path, str], bool] = {}  # names, to a sharding call
        self.shared: Shared = {}
        self.finder = ModuleFinder(root, read, self.shared)
        self.exports: dict[Path, Exports] = {}
        self.brought: dict[Path, frozenset[str]] = {}  # what a star import of a file may bring
        self.keys: dict[object, int] = {}
        self.numbers = count()
        self.top_levels: dict[Unit, TopLevel] = {}
        self.registering: dict[Unit, bool] = {}
        self.keepers: dict[tuple[Definition, bool], bool] = {}  # decorators, and whether called
        self.assigned: dict[ir.Node, list[ir.Expr]] = {}  # in each loop
        self.tells_ranks_apart: dict[object, bool] = {}  # each wrapper of a decorator
        self.plain_bodies: dict[ir.Node, dict[str, Any]] = {}  # what classes bind, by name
        self.budget = budget.BUDGET
        self.early_stops: dict[EarlyStop, None] = {}
        self.left_out: dict[tuple[str, str], str] = {}
        self.unread: dict[str, str] = {}
        self.crashes: dict[str, Exception] = {}

    def stop_early(self, path: str, entry: str, reason: str) -> None:
        """Note that part of what an entry does was not analyzed."""
        self.early_stops.setdefault(EarlyStop(path, entry, reason))

    def stopped_early(self, path: str, entry: str | None = None) -> tuple[EarlyStop, ...]:
        """Return why the analysis stopped early in an entry, or in any entry of a file."""
        stops = (stop for stop in self.early_stops if stop.path == path)
        return tuple(stop for stop in stops if entry in (None, stop.entry))

    def is_test(self, path: str) -> bool:
        """True if a file is a test or belongs to some, by its name or that of a folder it is in."""
        inside = path.removeprefix(f"{self.root.as_posix()}/")
        return any(map(_TEST.search, inside.split("/")))

    def unit(self, path: Path) -> Unit | None:
        """Return the unit of a file with its IR, or None if it cannot be read or is not Python."""
        unit = self.sketch(path)
        if unit is None or unit.path in self.broken:
            return None
        if unit.lowered is None:
            unit.lowered = self._lower(unit)
        return unit if unit.lowered is not None else None

    def sketch(self, path: Path) -> Unit | None:
        """Return the unit of a file, which may not be lowered, or None if it cannot be read."""
        key = path.as_posix()
        if key not in self.units:
            text = self.read(path)
            made = Unit(key, path.parent, text, self.imports(path)) if text is not None else None
            self.units[key] = made
        return self.units[key]

    def note_refused(self) -> None:
        """Note the files with suites that could not be lowered when they were needed."""
        for path, unit in self.units.items():
            for error in unit.lowered.refused if unit is not None and unit.lowered else ():
                if isinstance(error, TooDemanding):
                    self.unread[path] = error.message
                else:
                    self.failures.setdefault(path, error)

    def _lower(self, unit: Unit) -> ir.Module | None:
        try:
            return lower(unit.text, unit.path, self.ir_cache)
        except InvalidSyntax as error:
            self.failures[unit.path] = error
        except TooDemanding as error:
            self.unread[unit.path] = error.message
        except Exception as error:  # a bug in the engine must not affect other files
            self.crashes[unit.path] = error
        self.broken.add(unit.path)
        return None

    def find(self, module: str, level: int, importer: Unit | Path) -> Path | None:
        """Return the file that a module name resolves to in ``importer``, None for a library."""
        if isinstance(importer, Path):
            return self.finder.find(module, level, importer)
        if (module, level) not in importer.found:
            importer.found[module, level] = self.finder.find(module, level, importer.directory)
        return importer.found[module, level]

    def sharding_names(self, path: Path) -> frozenset[str]:
        """Return the names in a file that refer to a sharding call of PyTorch."""
        if path not in self.sharding:
            files = self.with_star_imports(path)
            self.sharding[path] = frozenset().union(*map(self._own_sharding_names, files))
        return self.sharding[path]

    def with_star_imports(self, path: Path) -> list[Path]:
        """Return a file and the files that it imports with a star, directly or through others."""
        found, seen = [path], {path}
        for each in found:
            stars = [self.find(*star, each.parent) for star in self.imports(each).stars]
            fresh = dict.fromkeys(file for file in stars if file is not None and file not in seen)
            seen.update(fresh)
            found.extend(fresh)
        return found

    def _own_sharding_names(self, path: Path) -> frozenset[str]:
        if path not in self.own_sharding:
            names = {name for name in self.bindings(path) if self.refers_to_sharding(path, name)}
            names.update(self._names_of_settings(path))
            for module, level in self.imports(path).stars:
                if self.find(module, level, path.parent) is None:
                    brought = names_brought(module, level)
                    names.update(name for name in brought if _shards(module, name))
            self.own_sharding[path] = frozenset(names)
        return self.own_sharding[path]

    def mentions_sharding(self, text: str) -> bool:
        """True if a file can contain a sharding call or setting, by its text."""
        return mentions_sharding(text) or self.is_launched(text)

    def is_launched(self, text: str) -> bool:
        """True if a file may use what shards by the settings of the launch."""
        return bool(self.launches) and uses_launcher(text)

    def launch_of(self, script: str) -> LaunchSettings | None:
        """Return the settings that a script is launched with: its own before those of all."""
        own = (each for each in self.launches if each.scripts and script in each.scripts)
        every = (e for e in self.launches if e.scripts is None and script not in e.others)
        return next(own, next(every, None))

    def _names_of_settings(self, path: Path) -> Iterator[str]:
        """Yield the names of a framework's classes in a file that may have it shard."""
        text = self.read(path) or ""
        if sets_sharding(text) or self.is_launched(text):
            for name, (module, level, member) in self.bindings(path).items():
                if not level and is_setting(f"{module}.{member}"):
                    yield name

    def lacks(self, module: str, level: int, importer: Unit) -> bool:
        """True if a module belongs to a package of the project that has no file for it."""
        if self.find(module, level, importer) is not None:
            return False
        if level:
            return True
        package, _, inner = module.partition(".")
        found = self.find(package, 0, importer) if inner else None
        if found is None or found.name != "__init__.py":
            return False
        above = found.parent.parent  # in another package, the name refers to something else
        return not self.finder.is_package(above)

    def refers_to_sharding(self, path: Path, name: str) -> bool:
        """True if a name in a file refers to a sharding call of PyTorch."""
        start = path, name
        if start not in self.referring:
            seen = {start: None}
            queue = [start]
            for where, each in queue:
                for module, level, member in self._origins(where, each):
                    found = self.find(module, level, where.parent)
                    target = None if found is None else (found, member)
                    known = target is not None and self.referring.get(target)
                    if known or (not level and _shards(module, member)):
                        self.referring[start] = True
                        return True
                    if target is not None and known is None and target not in seen:
                        seen[target] = None
                        queue.append(target)
            self.referring.update(dict.fromkeys(seen, False))
        return self.referring[start]

    def _origins(self, path: Path, name: str) -> Iterator[tuple[str, int, str]]:
        """Yield where a name of a file may be imported from, with its name there."""
        if name in self.bindings(path):
            module, level, member = self.bindings(path)[name]
            if member is not None:
                yield module, level, member
        else:
            for module, level in self.imports(path).stars:
                yield module, level, name

    def library_name(self, path: str, node: ir.Expr) -> str:
        """Return the canonical name that a dotted name of a library has by a file's imports.

        A builtin has its own name; anything else has "".
        """
        names: list[str] = []
        while isinstance(node, ir.Attribute):
            names.insert(0, node.attr)
            node = node.value
        if not isinstance(node, ir.Name):
            return ""
        if node.id in BUILTINS and not names and self._is_builtin(path, node.id):
            return node.id
        module, level, member = self.bindings(Path(path)).get(node.id, ("", 0, None))
        full = ".".join(filter(None, (module, member, *names)))
        return canonical(full) if module and not level else ""

    def _is_builtin(self, path: str, name: str) -> bool:
        """True if a file gives the name of a builtin to nothing else, as far as it says."""
        unit = self.sketch(Path(path))
        imports = self.imports(Path(path))
        defined = unit is None or name in unit.definitions
        return not (defined or name in imports.bindings or imports.stars)

    def bindings(self, path: Path) -> Mapping[str, Binding]:
        """Return the names that a file's imports bind."""
        return self.imports(path).bindings

    def imports(self, path: Path) -> Imports:
        """Return the imports of a file, read off its text."""
        if path not in self.imported:
            self.imported[path] = imports(self.read(path) or "", self.shared)
        return self.imported[path]

    def defines_one(self, unit: Unit, names: Iterable[str]) -> bool:
        """True if one of these names in a file refers, or may refer, to code of the project."""
        for name in names:
            module, level, _ = unit.bindings.get(name, ("", 0, None))
            imported = name in unit.bindings
            own = not imported and name not in BUILTINS  # by a loop or another file's star, say
            if name in unit.definitions or own:
                return True
            if imported and self.find(module, level, unit) is not None:
                return True
        return False

    def decorator(self, unit: Unit, name: str) -> Definition | None:
        """Return the definition that a decorator begins with, if it may keep what it decorates."""
        return self.loaded_definition(unit, name) if self.keeps(unit, name) else None

    def keeps(self, unit: Unit, name: str) -> bool:
        """True if a decorator that begins with ``name`` may keep what it decorates.

        It is the project's, may do so by its code, and is no object that a library made, such as a
        web application's router: what that decorates, only the library calls. Commands are an
        exception: the program's are followed.
        """
        found = self.loaded_definition(unit, name)
        if found is None:
            return self.defines_one(unit, [name])
        return not self._is_of_library(found) and not self._keeps_nothing(unit, name, found)

    def _keeps_nothing(self, unit: Unit, name: str, found: Definition) -> bool:
        """True if a decorator is a function that keeps nothing, and none of its attributes is."""
        if found.kind != "def" or found.decorators or unit.reads_from(name):
            return False
        ways = unit.decorates.get(name, (True, False))  # in a way that the text does not show
        return not any(self._may_keep(found, called) for called in ways)

    def _may_keep(self, decorator: Definition, called: bool) -> bool:
        if (decorator, called) not in self.keepers:
            loaded = self.unit(Path(decorator.unit.path))
            node = loaded.node(decorator) if loaded is not None else None
            function = node.function if isinstance(node, ir.FunctionDef) else None
            name_of = partial(self.library_name, decorator.unit.path)
            keeps = function is None or not keeps_nothing(function, name_of, called=called)
            self.keepers[decorator, called] = keeps
        return self.keepers[decorator, called]

    def is_of_library(self, unit: Unit, name: str) -> bool:
        """True if a name refers to an object that a library made, a router, say."""
        found = self.loaded_definition(unit, name)
        return found is not None and self._is_of_library(found)

    def _is_of_library(self, definition: Definition) -> bool:
        unit, names = definition.unit, definition.names - BUILTINS
        if definition.kind != "variable" or not names or self.defines_one(unit, names):
            return False
        sources = [unit.bindings[name] for name in names]
        packages = {module.split(".")[0] for module, _, _ in sources}
        relative = any(level for _, level, _ in sources)
        return not relative and packages.isdisjoint(COMMAND_LINE_PACKAGES)

    def definition(self, unit: Unit, name: str) -> Definition | None:
        """Return the function or class that a name refers to, in whatever file."""
        return self._definition(unit, name, self.sketch)

    def function(self, unit: Unit, name: str) -> tuple[Unit, ir.Function] | None:
        """Return the function that a name refers to in ``unit``, with the file that it is in."""
        found = self.definition(unit, name)
        if found is None or self.unit(Path(found.unit.path)) is None:
            return None
        node = found.unit.node(found)
        return (found.unit, node.function) if isinstance(node, ir.FunctionDef) else None

    def loaded_definition(self, unit: Unit, name: str) -> Definition | None:
        """Return the definition that a name refers to, among the files that are loaded."""
        return self._definition(unit, name, self._known)

    def _known(self, path: Path) -> Unit | None:
        return self.units.get(path.as_posix())

    def _definition(
        self, unit: Unit, name: str, get: Getter, seen: frozenset[tuple[Unit, str]] = frozenset()
    ) -> Definition | None:
        """Follow imports, re-exports and star imports to the definition of a name.

        Args:
            get: the unit of a file, if it may be looked into.
            seen: the names that are being followed, since imports can be circular.
        """
        if name in unit.definitions:
            return unit.definitions[name]
        unknown = name not in unit.bindings and not unit.imports.stars
        if unknown or (unit, name) in seen:
            return None
        seen |= {(unit, name)}
        sources: Iterable[Binding] = ((module, level, name) for module, level in unit.imports.stars)
        if name in unit.bindings:
            sources = (unit.bindings[name],)
        for module, level, member in sources:
            found = None if member is None else self.find(module, level, unit)
            target = None if found is None else get(found)
            if target is not None and member is not None:
                definition = self._definition(target, member, get, seen)
                if definition is not None:
                    return definition
        return None

    def module(self, unit: Unit, dotted: str) -> Unit | None:
        """Return the file that ``package.module`` refers to in ``unit`` by what it imports."""
        first, _, rest = dotted.partition(".")
        if first not in unit.bindings:
            return None
        module, level, member = unit.bindings[first]
        parts = [part for part in (module, member, rest) if part]
        found = self.find(".".join(parts), level, unit)
        return None if found is None else self.sketch(found)

    def loaded_module(self, unit: Unit, module: str, level: int) -> Unit | None:
        """Return the file that a module name refers to in ``unit``, if it is loaded."""
        found = self.find(module, level, unit)
        return None if found is None else self._known(found)


def _shards(module: str, name: str) -> bool:
    return canonical(f"{module}.{name}") in _SHARDS


def identifiers(*nodes: ir.Node) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names and the attribute names that occur below ``nodes``."""
    names, attributes = set(), set()
    for root in nodes:
        for node in ir.walk(root):
            if isinstance(node, ir.Name):
                names.add(node.id)
            elif isinstance(node, ir.Attribute):
                attributes.add(node.attr)
    return frozenset(names), frozenset(attributes)
