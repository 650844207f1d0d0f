"""A file of the program: its definitions, as its text shows them, and its IR once that is needed.

The names that a definition refers to are read off the text, in a fortieth of the time that LibCST
takes: enough to decide what can reach a sharding call. A word too many, such as a parameter's name,
makes something look related that is not; that costs time and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from keyword import kwlist
from pathlib import Path
from typing import Literal

from fsdplint.engine import ir
from fsdplint.engine.project.imports import Binding, Imports
from fsdplint.files.suites import Block, blocks, code_only
from fsdplint.knowledge.calls import SHARDING_NAMES
from fsdplint.knowledge.frameworks import sets_sharding

_KEYWORDS = frozenset(kwlist)
# A keyword argument, what is assigned to and what is defined are no references.
_NAME = re.compile(r"(?<![\w.])(?<!def )(?<!class )([^\W\d]\w*)(?![\w\"'])(?![ \t]*=(?!=))")
_ATTRIBUTE = re.compile(r"\.[\s\\]*([^\W\d]\w*)")
_COUNTER = re.compile(r"\.[\s\\]*([^\W\d]\w*)[ \t]*(?:[-+*/@%&|^]|//|\*\*|<<|>>)=")
_GLOBAL = re.compile(r"^[ \t]+global[ \t]+([\w, \t]+)", re.MULTILINE)
_DECORATOR = re.compile(r"^[ \t]*@\s*([^\W\d]\w*)", re.MULTILINE)
# Likewise, with the bracket of a call.
_DECORATING = re.compile(r"^[ \t]*@\s*([^\W\d]\w*)[ \t]*(\(?)", re.MULTILINE)
_FORWARD = re.compile(r"\.\s*forward\b")
_SUPER_FORWARD = re.compile(r"\bsuper\s*\([^()]*\)\s*\.\s*forward\b")
# A weight of a layer inside another one that is multiplied, or given to a function that does not
# initialize it (`normal_`). That of a layer itself is used in its own forward.
# A change of a parameter's data, which is lost in a forward of FSDP2's.
_CHANGED_DATA = re.compile(r"\.data(\s*=[^=]|\.\w+_\()")
# A model that clears its own gradients, those of its shards not among them in its forward.
_CLEARS = re.compile(r"\bself\.zero_grad\(")
_USED_WEIGHT = re.compile(r"(?:@|(?<!_)[(,])\s*\w+\.\w[\w.]*\.weight\b")
# A class in a type test is not called, so it does not make the code reach sharding.
_TYPE_TEST = re.compile(
    r"\b(isinstance|issubclass)(\s*\((?:[^()]|\([^()]*\))*?),(?:[^(),]|\([^()]*\))*,?\s*\)"
)
# How the class of a unit is called: in full, or as it is abbreviated where it is imported.
_UNIT_CLASS = re.compile(r"FSDP|FullyShardedDataParallel")
# `patch("package.module.fully_shard")`, `patch.object(module, "fully_shard")` and the like.
_MOCKED = re.compile(
    rf"\b(?:patch|setattr|object)\s*\([^()\"']*[\"'](?:[\w.]+\.)?(?:{'|'.join(SHARDING_NAMES)})[\"']"
)
# Where a statement may start, and the brackets that it goes on in.
_STATEMENT = re.compile(r"^(?=[^\s#])|[\[({]|[\])}]", re.MULTILINE)
_VARIABLE = re.compile(r"([^\W\d]\w*)[ \t]*(?::[^=\n]*)?=(?!=)")

Kind = Literal["def", "class", "variable", "module"]


@dataclass(slots=True, eq=False)
class Definition:
    """A function, a class with its methods, a variable of a module (a table of functions, say), or
    what a module does when it runs.

    Attributes:
        names: the names that it refers to, those of its decorators apart.
        attributes: the attributes.
        decorators: the names that its decorators begin with, their arguments apart.
        own_names: those of a class outside of its methods; of anything else the same as ``names``.
        own_attributes: the attributes likewise.
        may_shard: running or calling it may reach a sharding call.
        entry: it surely reaches one, by names that resolve.
        names_unit: it names what may be a unit's class, in an annotation or a test, say.
    """

    unit: Unit
    kind: Kind
    name: str
    owner: Definition | None
    names: frozenset[str]
    attributes: frozenset[str]
    decorators: frozenset[str] = frozenset()
    methods: dict[str, Definition] = field(default_factory=dict)
    own_names: frozenset[str] = field(init=False)
    own_attributes: frozenset[str] = field(init=False)
    may_shard: bool = False
    entry: bool = False
    names_unit: bool = False

    def __post_init__(self) -> None:
        self.own_names, self.own_attributes = self.names, self.attributes


@dataclass(frozen=True, slots=True)
class Deferred:
    """A statement of an imported module that runs when one of its names is first read."""

    statement: ir.Stmt
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopLevel:
    """The statements of an imported module.

    Attributes:
        at_once: those that the import runs, in order.
        deferred: the others, by each name that they bind.
    """

    at_once: tuple[ir.Stmt, ...]
    deferred: Mapping[str, Deferred]


@dataclass(eq=False)
class Unit:
    """One file of the program.

    Attributes:
        imports: those anywhere in the file.
        definitions: functions and classes at the top level, nested in ``if`` and ``try`` too, and
            the variables beside them.
        top: the code outside of functions and classes.
        follows_forward: what a forward does matters, since the file reads some module's
            ``.forward``, other than ``super()``'s, uses a weight outside of its layer, changes
            the data of a parameter, or clears its own gradients.
        counters: attributes that some statement of the file counts up or down.
        registers: a decorated function shards, so that importing the file may register it.
        lowered: the IR, once it is needed.
        found: cached results of `Project.find`, by name and level.
        read: cached results of `reads_from`.
    """

    path: str
    directory: Path
    text: str
    imports: Imports
    definitions: dict[str, Definition] = field(default_factory=dict)
    follows_forward: bool = False
    registers: bool = False
    counters: frozenset[str] = frozenset()
    lowered: ir.Module | None = None
    found: dict[tuple[str, int], Path | None] = field(default_factory=dict)
    read: dict[str, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        code = code_only(self.text)
        self.counters = frozenset(_COUNTER.findall(code))
        forwards = len(_FORWARD.findall(code))
        direct = forwards > len(_SUPER_FORWARD.findall(code))
        self.follows_forward = direct or any(
            pattern.search(code) is not None for pattern in (_USED_WEIGHT, _CHANGED_DATA, _CLEARS)
        )
        self.top = _Sketch(self, code).take()

    @property
    def bindings(self) -> Mapping[str, Binding]:
        """Return the names that imports bind."""
        return self.imports.bindings

    @property
    def module(self) -> ir.Module:
        assert self.lowered is not None, self.path
        return self.lowered

    def reads_from(self, name: str) -> bool:
        """True if an attribute of ``name`` may be read in the file."""
        if name not in self.read:
            self.read[name] = f"{name}." in self.text
        return self.read[name]

    @cached_property
    def decorates(self) -> Mapping[str, frozenset[bool]]:
        """Return, by each name that decorates in the file, whether it is called: maybe both."""
        found: dict[str, set[bool]] = {}
        for each in _DECORATING.finditer(self.text):
            found.setdefault(each[1], set()).add(bool(each[2]))
        return {name: frozenset(ways) for name, ways in found.items()}

    def is_own_constant(self, name: str) -> bool:
        """True if a name is a variable of the file that is made of nothing imported."""
        found = self.definitions.get(name)
        return found is not None and found.kind == "variable" and not found.names & self.imported

    @cached_property
    def imported(self) -> frozenset[str]:
        """Return the names that imports bind, those of packages included."""
        packages = (module.split(".")[0] for module, level in self.imports.modules if not level)
        return frozenset((*self.bindings, *packages))

    @cached_property
    def rebound(self) -> frozenset[str]:
        """Return the variables of the module that a function declares global."""
        found = (each[1].split(",") for each in _GLOBAL.finditer(self.text))
        return frozenset(name.strip() for names in found for name in names)

    @cached_property
    def mocks_sharding(self) -> bool:
        """True if something replaces a sharding function, as tests do."""
        return _MOCKED.search(self.text) is not None

    @cached_property
    def sets_sharding(self) -> bool:
        """True if the file may hold settings by which a framework shards."""
        return sets_sharding(self.text)

    @cached_property
    def _nodes(self) -> dict[tuple[str, ...], ir.FunctionDef | ir.ClassDef]:
        nodes: dict[tuple[str, ...], ir.FunctionDef | ir.ClassDef] = {}
        for node in _top_level(self.module.body):
            nodes[(_name(node),)] = node
            if isinstance(node, ir.ClassDef):
                nodes.update({(node.name, _name(inner)): inner for inner in _top_level(node.body)})
        return nodes

    def node(self, definition: Definition) -> ir.FunctionDef | ir.ClassDef | None:
        """Return where a function or class is defined; None if that is in a loop or the like."""
        owner = definition.owner
        return self._nodes.get((owner.name, definition.name) if owner else (definition.name,))


class _Sketch:
    """Takes the definitions of a unit from its code."""

    def __init__(self, unit: Unit, code: str) -> None:
        self.unit = unit
        self.code = code
        self.inside: dict[Block | None, list[Block]] = {}
        for block in blocks(code):
            self.inside.setdefault(block.parent, []).append(block)

    def take(self) -> Definition:
        """Return the code outside of functions and classes; definitions are added to the unit."""
        tops = self.inside.get(None, [])
        for block in tops:
            self.unit.definitions[block.name] = self.define(block, None)
        pieces = list(_between(self.code, 0, len(self.code), tops))
        for piece in pieces:
            for variable in self.variables(piece):
                self.unit.definitions.setdefault(variable.name, variable)
        return Definition(self.unit, "module", "<module>", None, *words(pieces))

    def define(self, block: Block, owner: Definition | None) -> Definition:
        inner = self.inside.get(block, []) if block.kind == "class" else []
        decorating = self.code[block.start : block.header]
        decorators = frozenset(_DECORATOR.findall(decorating))
        body = _between(self.code, block.header, block.end, inner)
        names, attributes = words([_DECORATOR.sub("@", decorating), *body])
        names_unit = _UNIT_CLASS.search(self.code, block.header, block.end) is not None
        kind: Kind = "class" if block.kind == "class" else "def"
        made = Definition(self.unit, kind, block.name, owner, names, attributes, decorators)
        made.names_unit = names_unit
        for each in inner:
            method = made.methods[each.name] = self.define(each, made)
            made.names |= method.names
            made.attributes |= method.attributes
        return made

    def variables(self, piece: str) -> Iterator[Definition]:
        for start, end in pairwise([*_starts(piece), len(piece)]):
            target = _VARIABLE.match(piece, start, end)
            if target is not None:
                found = words([piece[target.end() : end]])
                yield Definition(self.unit, "variable", target[1], None, *found)


def _starts(piece: str) -> Iterator[int]:
    """Yield where statements start that are not indented."""
    depth = 0
    for found in _STATEMENT.finditer(piece):
        if found.group():
            depth = depth + 1 if found.group() in "[({" else max(depth - 1, 0)
        elif not depth:
            yield found.start()


def _between(code: str, start: int, end: int, inner: Iterable[Block]) -> Iterator[str]:
    """Yield the code that is in none of the blocks."""
    for block in inner:
        yield code[start : block.start]
        start = block.end
    yield code[start:end]


def words(pieces: Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names and the attributes that pieces of a `code_only` text refer to."""
    names: set[str] = set()
    attributes: set[str] = set()
    for piece in pieces:
        if "isinstance" in piece or "issubclass" in piece:
            piece = _TYPE_TEST.sub(r"\1\2)", piece)
        names.update(_NAME.findall(piece))
        attributes.update(_ATTRIBUTE.findall(piece))
    return frozenset(names - _KEYWORDS), frozenset(attributes)


def _name(node: ir.FunctionDef | ir.ClassDef) -> str:
    return node.function.name if isinstance(node, ir.FunctionDef) else node.name


def _top_level(body: Iterable[ir.Stmt]) -> Iterator[ir.FunctionDef | ir.ClassDef]:
    for node in body:
        if isinstance(node, (ir.FunctionDef, ir.ClassDef)):
            yield node
        elif isinstance(node, ir.If):
            yield from _top_level((*node.body, *node.orelse))
        elif isinstance(node, ir.Try):
            handlers = [stmt for handler in node.handlers for stmt in handler.body]
            yield from _top_level((*node.body, *handlers, *node.orelse))
