"""The intermediate representation: the parts of a module that the engine executes.

A node has its half-open character span in the file, without enclosing parentheses, which is all
that evidence and edits need. Nodes compare by identity: two equal calls are two events. The names
and fields are those of `ast` where it has the same node; an ``op`` is the name of LibCST's class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields

from fsdplint.files.invalid import InvalidSyntax, TooDemanding


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A part of a file: the characters from ``start`` up to ``end``."""

    start: int
    end: int


# Expressions


@dataclass(frozen=True, slots=True, eq=False)
class Name(Node):
    id: str


@dataclass(frozen=True, slots=True, eq=False)
class Constant(Node):
    value: str | bytes | int | float | complex | bool | None


@dataclass(frozen=True, slots=True, eq=False)
class Attribute(Node):
    value: Expr
    attr: str


@dataclass(frozen=True, slots=True, eq=False)
class Argument(Node):
    """``value``, ``keyword=value``, ``*value`` or ``**value``."""

    value: Expr
    keyword: str | None
    star: str


@dataclass(frozen=True, slots=True, eq=False)
class Call(Node):
    func: Expr
    args: tuple[Argument, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Subscript(Node):
    value: Expr
    index: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Collection(Node):
    """A list, tuple or set display; ``kind`` is the builtin's name."""

    kind: str
    elements: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class DictDisplay(Node):
    """A dict display; ``**value`` has the key None."""

    items: tuple[tuple[Expr | None, Expr], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Starred(Node):
    """``*value`` in a display or a target."""

    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Clause(Node):
    """One ``for target in iterable if conditions`` of a comprehension."""

    target: Expr
    iterable: Expr
    conditions: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Comprehension(Node):
    """``kind`` is list, set, dict or generator; ``key`` is set for a dict only."""

    kind: str
    key: Expr | None
    element: Expr
    clauses: tuple[Clause, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Lambda(Node):
    function: Function


@dataclass(frozen=True, slots=True, eq=False)
class Conditional(Node):
    """``body if test else orelse``."""

    test: Expr
    body: Expr
    orelse: Expr


@dataclass(frozen=True, slots=True, eq=False)
class BoolOp(Node):
    """``op`` is "and" or "or"."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Not(Node):
    operand: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Compare(Node):
    """A chained comparison is a conjunction of these."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True, eq=False)
class BinOp(Node):
    """``left op right`` with an arithmetic operator."""

    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True, eq=False)
class NamedExpr(Node):
    """``target := value``."""

    target: Expr
    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class FormattedString(Node):
    """An f-string: the literal text around ``values``, one more piece than values."""

    literals: tuple[str, ...]
    values: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Yield(Node):
    """``yield``, ``yield from`` and ``await``, whose result only their caller knows."""

    kind: str
    value: Expr | None


@dataclass(frozen=True, slots=True, eq=False)
class Opaque(Node):
    """An expression of no consequence here but for the calls inside it."""

    children: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Pattern(Node):
    """One alternative of a pattern.

    Attributes:
        value: what the subject must be equal to.
        cls: what it must be an instance of.
        partly: the pattern has further conditions.
    """

    value: Expr | None
    cls: Expr | None
    partly: bool


@dataclass(frozen=True, slots=True, eq=False)
class Matches(Node):
    """Test whether the subject of the enclosing `Match` matches, and bind the names of patterns.

    Attributes:
        patterns: alternatives, one of which must match; empty if anything matches.
        whole: the name that is bound to the whole subject.
    """

    patterns: tuple[Pattern, ...]
    names: tuple[str, ...]
    whole: str | None


Expr = (
    Name
    | Constant
    | Attribute
    | Call
    | Subscript
    | Collection
    | DictDisplay
    | Starred
    | Comprehension
    | Lambda
    | Conditional
    | BoolOp
    | Not
    | Compare
    | Matches
    | BinOp
    | NamedExpr
    | FormattedString
    | Yield
    | Opaque
)


# Statements


@dataclass(frozen=True, slots=True, eq=False)
class Parameter(Node):
    """``kind`` is "positional", "keyword", "*" or "**"."""

    name: str
    kind: str
    default: Expr | None
    annotation: Expr | None


class Suite:
    """The statements of a function, lowered on first use.

    Attributes:
        start: the offset of its first line.
        end: the offset after its last statement.
    """

    __slots__ = ("_lowered", "end", "start")

    def __init__(
        self, start: int, end: int, lowered: LoweredSuite | Callable[[], LoweredSuite]
    ) -> None:
        self.start = start
        self.end = end
        self._lowered = lowered

    @property
    def lowered(self) -> LoweredSuite:
        if not isinstance(self._lowered, LoweredSuite):
            self._lowered = self._lowered()
        return self._lowered

    @property
    def is_lowered(self) -> bool:
        return isinstance(self._lowered, LoweredSuite)


def deferred_suite(start: int, end: int, lower_suite: Callable[[int, int], LoweredSuite]) -> Suite:
    """Return the suite between two offsets, which ``lower_suite`` lowers on demand."""
    return Suite(start, end, lambda: lower_suite(start, end))


@dataclass(frozen=True, slots=True)
class LoweredSuite:
    """The statements of a suite or a file.

    Attributes:
        is_generator: one of them makes their function a generator.
        exact: see `Module`.
    """

    body: tuple[Stmt, ...]
    is_generator: bool
    exact: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Function(Node):
    """The function that a ``def`` or a lambda makes."""

    name: str
    parameters: tuple[Parameter, ...]
    suite: Suite
    decorators: tuple[Expr, ...]
    returns: Expr | None

    @property
    def body(self) -> tuple[Stmt, ...]:
        return self.suite.lowered.body

    @property
    def is_generator(self) -> bool:
        return self.suite.lowered.is_generator


@dataclass(frozen=True, slots=True, eq=False)
class FunctionDef(Node):
    function: Function


@dataclass(frozen=True, slots=True, eq=False)
class ClassDef(Node):
    name: str
    bases: tuple[Expr, ...]
    body: tuple[Stmt, ...]
    decorators: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Assign(Node):
    """``target = target = value``, with or without an annotation."""

    targets: tuple[Expr, ...]
    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Declare(Node):
    """``name: annotation`` without a value: a dataclass field."""

    target: Expr
    annotation: Expr


@dataclass(frozen=True, slots=True, eq=False)
class AugAssign(Node):
    """``target op= value``."""

    target: Expr
    op: str
    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Expression(Node):
    """An expression as a statement."""

    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Return(Node):
    value: Expr | None


@dataclass(frozen=True, slots=True, eq=False)
class If(Node):
    test: Expr
    body: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True, eq=False)
class For(Node):
    target: Expr
    iterable: Expr
    body: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True, eq=False)
class While(Node):
    test: Expr
    body: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True, eq=False)
class WithItem(Node):
    """``value as target`` of a ``with`` statement."""

    value: Expr
    target: Expr | None


@dataclass(frozen=True, slots=True, eq=False)
class With(Node):
    items: tuple[WithItem, ...]
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Handler(Node):
    """``except type as name:``."""

    type: Expr | None
    name: str | None
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Try(Node):
    body: tuple[Stmt, ...]
    handlers: tuple[Handler, ...]
    orelse: tuple[Stmt, ...]
    final: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Case(Node):
    """One case of a ``match``; the next one is its ``orelse``, as of an ``elif``."""

    test: Expr
    body: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Match(Node):
    """``match``; ``body`` is its first case."""

    subject: Expr
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Import(Node):
    """``import a.b as c`` is the pair ("a.b", "c")."""

    names: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True, eq=False)
class ImportFrom(Node):
    """``names`` is empty for a star import."""

    module: str
    level: int
    names: tuple[tuple[str, str | None], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Raise(Node):
    value: Expr | None


@dataclass(frozen=True, slots=True, eq=False)
class Assert(Node):
    test: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Delete(Node):
    targets: tuple[Expr, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Break(Node):
    """``break``."""


@dataclass(frozen=True, slots=True, eq=False)
class Continue(Node):
    """``continue``."""


@dataclass(frozen=True, slots=True, eq=False)
class Scope(Node):
    """``global`` or ``nonlocal``."""

    kind: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Pass(Node):
    """``pass``, and any statement that does nothing here."""


Stmt = (
    FunctionDef
    | ClassDef
    | Assign
    | Declare
    | AugAssign
    | Expression
    | Return
    | If
    | For
    | While
    | With
    | Try
    | Match
    | Case
    | Import
    | ImportFrom
    | Raise
    | Assert
    | Delete
    | Break
    | Continue
    | Scope
    | Pass
)


@dataclass(frozen=True, slots=True, eq=False)
class Module(Node):
    """A file.

    Attributes:
        exact: LibCST's tree renders to the text of the file, so that spans can be edited.
        refused: errors of suites that could not be lowered when they were needed.
    """

    path: str
    body: tuple[Stmt, ...]
    exact: bool
    refused: list[InvalidSyntax | TooDemanding] = field(default_factory=list)


def field_names(kind: type[Node]) -> tuple[str, ...]:
    """Return the fields of a kind of node besides its span, in source order."""
    if kind not in _FIELDS:
        _FIELDS[kind] = stored_names(kind)
    return _FIELDS[kind]


def stored_names(kind: type[Node]) -> tuple[str, ...]:
    """Return the fields of a kind of node besides its span, in the order of its arguments."""
    return tuple(each.name for each in fields(kind) if each.name not in ("start", "end"))


_FIELDS: dict[type[Node], tuple[str, ...]] = {
    Function: ("name", "parameters", "body", "decorators", "returns", "is_generator")
}


def children(node: Node) -> list[Node]:
    """Return the nodes directly below ``node``, in source order of its fields."""
    return _below(node, field_names(type(node)))


def signature(function: Function) -> list[Node]:
    """Return the nodes directly below a function that are not in its suite."""
    return _below(function, ("parameters", "decorators", "returns"))


def _below(node: Node, names: tuple[str, ...]) -> list[Node]:
    found: list[Node] = []
    for name in names:
        value = getattr(node, name)
        if isinstance(value, Node):
            found.append(value)
        elif type(value) is tuple:
            _collect(value, found)
    return found


def _collect(values: tuple[object, ...], found: list[Node]) -> None:
    for value in values:
        if isinstance(value, Node):
            found.append(value)
        elif type(value) is tuple:
            _collect(value, found)


def walk_scope(*nodes: Node) -> Iterator[Node]:
    """Yield ``nodes`` and every node below them, without those of nested functions and classes."""
    stack = list(reversed(nodes))
    while stack:
        current = stack.pop()
        yield current
        if not isinstance(current, (Function, ClassDef)):
            stack.extend(reversed(children(current)))


def names_bound(node: Node) -> list[str]:
    """Return the names that a definition, an import, a handler or a pattern binds."""
    match node:
        case Import() | ImportFrom():
            return [alias or name.split(".")[0] for name, alias in node.names]
        case FunctionDef():
            return [node.function.name]
        case ClassDef() | Handler():
            return [node.name] if node.name else []
        case Matches():
            return [*node.names]
    return []


def base_class(base: Expr) -> Expr:
    """Return ``Base`` of ``class Derived(Base[T])``; what a registry holds is left as it is."""
    name = last_name(base.value) if isinstance(base, Subscript) else ""
    named_as_class = name[:1].isupper() and not name.isupper()
    return base.value if isinstance(base, Subscript) and named_as_class else base


def last_name(node: Node | None) -> str:
    """Return the last part of a dotted name, "" for another expression."""
    if isinstance(node, Attribute):
        return node.attr
    return node.id if isinstance(node, Name) else ""


def operands(test: Node, *ops: str) -> Iterator[Node]:
    """Yield what ``and`` and ``or`` combine, or one of them if only it is given."""
    if isinstance(test, BoolOp) and test.op in (ops or ("and", "or")):
        yield from operands(test.left, *ops)
        yield from operands(test.right, *ops)
    else:
        yield test


def is_main_guard(node: If) -> bool:
    """True if an ``if`` tests whether the file is run as a script."""
    test = node.test
    if not isinstance(test, Compare) or test.op != "Equal":
        return False
    sides = (test.left, test.right)
    names = [each.id for each in sides if isinstance(each, Name)]
    values = [each.value for each in sides if isinstance(each, Constant)]
    return names == ["__name__"] and values == ["__main__"]


def walk(node: Node) -> Iterator[Node]:
    """Yield ``node`` and every node below it, parents first."""
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        stack.extend(reversed(children(current)))
