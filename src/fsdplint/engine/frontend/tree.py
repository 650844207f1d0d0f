"""A file's IR with links to parents, and queries on scopes and variables."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import get_args

from fsdplint.engine import ir
from fsdplint.files.lexing import NEWLINE

STATEMENTS: tuple[type[ir.Node], ...] = get_args(ir.Stmt)
COMPOUND = (
    *(ir.FunctionDef, ir.ClassDef, ir.If, ir.For, ir.While, ir.With, ir.Try, ir.Match, ir.Case),
)
# Builtins that access variables by their names.
_LOOKUPS = ("globals", "locals", "vars", "eval", "exec")


@dataclass(frozen=True, slots=True)
class Block:
    """The statements of one suite of ``owner``; equal to itself only, as nodes are."""

    owner: ir.Node
    statements: tuple[ir.Stmt, ...]


@dataclass(frozen=True)
class Tree:
    """The text of the file at ``path`` with the module lowered from it.

    Attributes:
        is_private: whether no other file can use the names that this one binds.
    """

    path: str
    text: str
    module: ir.Module
    is_private: Callable[[], bool] = field(default=lambda: False, compare=False)

    @cached_property
    def _parents(self) -> dict[ir.Node, ir.Node]:
        return {}

    @cached_property
    def _deferred(self) -> list[ir.Node]:
        """Nodes below which parents are not noted yet, since a suite is not lowered."""
        return [self.module]

    def parent(self, node: ir.Node) -> ir.Node:
        if node not in self._parents:
            self._note_parents()
        return self._parents[node]

    def _note_parents(self) -> None:
        stack = [node for node in self._deferred if not _is_deferred(node)]
        self._deferred[:] = filter(_is_deferred, self._deferred)
        while stack:
            node = stack.pop()
            if _is_deferred(node):
                self._deferred.append(node)
            below = _lowered_children(node)
            self._parents.update(dict.fromkeys(below, node))
            stack.extend(below)

    def ancestors(self, node: ir.Node) -> Iterator[ir.Node]:
        """Yield the nodes around ``node``, the nearest first; the module is the last."""
        while node is not self.module:
            node = self.parent(node)
            yield node

    def statement(self, node: ir.Node) -> ir.Stmt:
        """Return the innermost statement that is or contains ``node``."""
        for candidate in (node, *self.ancestors(node)):
            # The body of a lambda is a `Return` that is no statement in the text.
            if isinstance(candidate, STATEMENTS) and not self.in_lambda(candidate):
                return candidate  # type: ignore[return-value]  # STATEMENTS are the types of Stmt
        raise ValueError("the module is in no statement")

    def in_lambda(self, node: ir.Node) -> bool:
        return any(isinstance(ancestor, ir.Lambda) for ancestor in self.ancestors(node))

    def walk(self, *words: str) -> Iterator[ir.Node]:
        """Yield every node, except in suites whose text has none of ``words``.

        Such a suite is not lowered.
        """
        stack: list[ir.Node] = [self.module]
        while stack:
            node = stack.pop()
            yield node
            if isinstance(node, ir.Function) and not self._has(node.suite, words):
                stack.extend(reversed(ir.signature(node)))
            else:
                stack.extend(reversed(ir.children(node)))

    def _has(self, suite: ir.Suite, words: Sequence[str]) -> bool:
        return any(self.text.find(word, suite.start, suite.end) >= 0 for word in words)

    def line_number(self, offset: int) -> int:
        return bisect_right(self._lines, offset)

    @cached_property
    def _lines(self) -> list[int]:
        """Where each line starts."""
        return [0, *(newline.end() for newline in NEWLINE.finditer(self.text))]

    @cached_property
    def functions(self) -> tuple[ir.Function, ...]:
        """Return every function and method of the file, without lambdas."""
        nodes = self.walk("def ", "def\t")
        return tuple(node.function for node in nodes if isinstance(node, ir.FunctionDef))

    @cached_property
    def main_guard(self) -> ir.If | None:
        """Return ``if __name__ == "__main__":``, which may be inside a function."""
        tests = (node for node in self.walk("__name__") if isinstance(node, ir.If))
        return next((node for node in tests if ir.is_main_guard(node)), None)

    def is_rebound(self, expression: ir.Expr) -> bool:
        """True if a name in ``expression`` is a loop variable or is assigned more than once."""
        names = {node.id for node in ir.walk(expression) if isinstance(node, ir.Name)}
        targets: list[str] = []
        for node in ir.walk(self.function(expression) or self.module):
            if isinstance(node, (ir.For, ir.Clause)):
                targets += 2 * [n.id for n in ir.walk(node.target) if isinstance(n, ir.Name)]
            elif isinstance(node, ir.Assign):
                targets += [target.id for target in node.targets if isinstance(target, ir.Name)]
        return any(targets.count(name) > 1 for name in names)

    def meaning(self, expression: ir.Expr) -> ir.Expr:
        """Return the value that the only statement of a scope that binds a variable gives it.

        Any other expression is returned as it is.
        """
        for _ in range(3):
            if not isinstance(expression, ir.Name):
                break
            given = self._given(expression)
            if given is None:
                break
            expression = given
        return expression

    def _given(self, name: ir.Name) -> ir.Expr | None:
        binding = self._bindings(name)
        first = binding[0] if len(binding) == 1 else None
        plain = isinstance(first, ir.Assign) and len(first.targets) == 1
        if not plain or not isinstance(first, ir.Assign) or first.start > name.start:
            return None
        return _part(first.targets[0], first.value, name.id)

    def _bindings(self, name: ir.Name) -> list[ir.Node]:
        """Return what binds a name in its scope; nothing if a parameter or another scope may."""
        scope = self.scope(name)
        parameters = scope.parameters if isinstance(scope, ir.Function) else ()
        if name.id in self.shared or any(each.name == name.id for each in parameters):
            return []
        return [node for node in self.nodes_of(scope) if _binds(node, name.id)]

    def assigned(self, name: ir.Name) -> list[ir.Expr]:
        """Return the values that statements of its scope assign to a variable."""
        return [node.value for node in self._bindings(name) if isinstance(node, ir.Assign)]

    def is_parameter(self, name: ir.Name) -> bool:
        """True if a name is surely the argument for one parameter of its function."""
        scope = self.scope(name)
        parameters = scope.parameters if isinstance(scope, ir.Function) else ()
        plain = any(each.name == name.id and not each.kind.startswith("*") for each in parameters)
        bound = name.id in self.shared or any(_binds(n, name.id) for n in self.nodes_of(scope))
        return plain and not bound

    @cached_property
    def shared(self) -> frozenset[str]:
        """Return the names that a function may bind in a scope around it."""
        scopes = [node for node in self.walk("global", "nonlocal") if isinstance(node, ir.Scope)]
        return frozenset(name for node in scopes for name in node.names)

    def chosen(self, expression: ir.Expr) -> tuple[ir.Expr, ir.Expr, ir.Expr] | None:
        """Return the test of a conditional value, and the value if it is true and if it is not.

        The value is a conditional expression, or a variable that the two arms of an ``if`` assign
        and nothing else does.
        """
        meant = self.meaning(expression)
        if isinstance(meant, ir.Conditional):
            return meant.test, meant.body, meant.orelse
        bound = self._bindings(meant) if isinstance(meant, ir.Name) else []
        given = [each for each in bound if isinstance(each, ir.Assign)]
        if not len(bound) == len(given) == 2 or len(given[0].targets) + len(given[1].targets) > 2:
            return None
        one, other = given
        branch = self.parent(one)
        if not isinstance(branch, ir.If) or branch.end > meant.start:
            return None
        apart = one in branch.body and other in branch.orelse
        return (branch.test, one.value, other.value) if apart else None

    def sources(self, expression: ir.Node) -> list[ir.Node]:
        """Return ``expression`` and what assigns to variables in it, transitively.

        That is the statement, or what a loop runs over.

        For ``args.rank`` these are the ones of ``args`` and of this attribute, and for ``args``
        alone those of its attributes as well.
        """
        given: dict[str, list[ir.Node]] = {}
        scopes = dict.fromkeys((self.scope(expression), self.module))
        for node in (node for scope in scopes for node in self.nodes_of(scope)):
            source = node.iterable if isinstance(node, (ir.For, ir.Clause)) else node
            for name in _given_names(node):
                given.setdefault(name, []).append(source)
        found = [expression]
        for each in found:
            for name, whole in _read_names(each):
                inner = [key for key in given if whole and key.startswith(f"{name}.")]
                for key in (name, *inner):
                    stores = given.get(key, [])
                    given[key] = [store for store in stores if not self._may_precede(store, each)]
                    found += (store for store in stores if store not in given[key])
        return list(dict.fromkeys(found))

    def _may_precede(self, store: ir.Node, use: ir.Node) -> bool:
        """True if a store ends before a use begins, or is in a loop with it or in another scope."""
        if self.scope(store) is not self.scope(use) or store.end <= use.start:
            return True
        kinds = (ir.For, ir.While, ir.Comprehension)
        loops = (each for each in self.ancestors(store) if isinstance(each, kinds))
        return any(each.start <= use.start < each.end for each in loops)

    def contexts(self, statement: ir.With) -> list[ir.Expr]:
        """Return what a ``with`` statement enters, the outermost first."""
        return [self.meaning(item.value) for item in statement.items]

    def block(self, statement: ir.Stmt) -> Block:
        owner = self.parent(statement)
        return next(block for block in blocks(owner) if statement in block.statements)

    def function(self, node: ir.Node) -> ir.Function | None:
        """Return the innermost function or lambda around ``node``."""
        return next((a for a in self.ancestors(node) if isinstance(a, ir.Function)), None)

    def scope(self, node: ir.Node) -> ir.Function | ir.ClassDef | ir.Module:
        """Return the innermost function, class or module around ``node``."""
        kinds = (ir.Function, ir.ClassDef, ir.Module)
        return next(a for a in self.ancestors(node) if isinstance(a, kinds))

    @cached_property
    def _nodes_by_scope(self) -> dict[ir.Node, list[ir.Node]]:
        return {}

    def nodes_of(self, scope: ir.Function | ir.ClassDef | ir.Module) -> Sequence[ir.Node]:
        """Return the nodes of a scope, without those of nested functions and classes."""
        if scope not in self._nodes_by_scope:
            self._nodes_by_scope[scope] = list(ir.walk_scope(*ir.children(scope)))
        return self._nodes_by_scope[scope]

    @cached_property
    def imports(self) -> tuple[ir.Import | ir.ImportFrom, ...]:
        """Return every import statement of the file."""
        nodes = self.walk("import")
        return tuple(node for node in nodes if isinstance(node, (ir.Import, ir.ImportFrom)))

    @cached_property
    def looks_up_variables(self) -> bool:
        """True if the file may read one of its variables by a computed name."""
        calls = [node for node in self.walk(*_LOOKUPS) if isinstance(node, ir.Call)]
        found = [call for call in calls if isinstance(call.func, ir.Name)]
        return any(_is_lookup(call.func.id, call.args) for call in found)  # type: ignore[union-attr]  # Names

    @cached_property
    def looked_into(self) -> frozenset[str]:
        """Return the last names of objects whose attributes are read by computed names."""
        calls = [node for node in self.walk("getattr") if isinstance(node, ir.Call)]
        owners = [call.args[0].value for call in calls if _is_dynamic(call)]
        return frozenset(
            each.attr if isinstance(each, ir.Attribute) else self.slice(each) for each in owners
        )

    def slice(self, node: ir.Node) -> str:
        return self.text[node.start : node.end]


def _is_deferred(node: ir.Node) -> bool:
    return isinstance(node, ir.Function) and not node.suite.is_lowered


def _lowered_children(node: ir.Node) -> list[ir.Node]:
    """Return the nodes directly below ``node`` that are lowered."""
    if isinstance(node, ir.Function) and not node.suite.is_lowered:
        return ir.signature(node)
    return ir.children(node)


def _is_lookup(name: str, args: Sequence[ir.Argument]) -> bool:
    return name in _LOOKUPS and not (name == "vars" and args)


def _is_dynamic(call: ir.Call) -> bool:
    """True if a call is ``getattr`` with a computed name."""
    named = isinstance(call.func, ir.Name) and call.func.id == "getattr"
    return named and len(call.args) > 1 and not isinstance(call.args[1].value, ir.Constant)


def _part(target: ir.Expr, value: ir.Expr, name: str) -> ir.Expr | None:
    """Return what an assignment to ``target`` assigns to ``name``, alone or in a tuple."""
    if isinstance(target, ir.Name):
        return value
    if not isinstance(target, ir.Collection) or not isinstance(value, ir.Collection):
        return None
    pairs = list(zip(target.elements, value.elements, strict=False))
    spread = any(isinstance(each, ir.Starred) for pair in pairs for each in pair)
    if spread or len(target.elements) != len(value.elements):
        return None
    return next((v for t, v in pairs if isinstance(t, ir.Name) and t.id == name), None)


def _given_names(node: ir.Node) -> set[str]:
    """Return the variables, and the attributes of variables, that a node assigns to."""
    kinds = (ir.AugAssign, ir.WithItem, ir.NamedExpr, ir.For, ir.Clause)
    targets = node.targets if isinstance(node, ir.Assign) else ()
    if isinstance(node, kinds) and node.target is not None:
        targets = (node.target,)
    named = (pair for target in targets for pair in _read_names(target))
    return {name for name, whole in named if whole or "." in name}


def _read_names(node: ir.Node) -> list[tuple[str, bool]]:
    """Return the variables in a node, and what of them: (name, whether more than an attribute).

    An attribute is itself among them, as "variable.attribute".
    """
    names: list[tuple[str, bool]] = []
    bases = set()
    for each in ir.walk(node):  # an attribute comes before what it is of
        if isinstance(each, ir.Attribute) and isinstance(each.value, ir.Name):
            bases.add(id(each.value))
            names.append((f"{each.value.id}.{each.attr}", False))
        elif isinstance(each, ir.Name):
            names.append((each.id, id(each) not in bases))
    return names


def _binds(node: ir.Node, name: str) -> bool:
    """True if a statement or a clause binds ``name``, or may do so."""
    if name in ir.names_bound(node) or (isinstance(node, ir.Scope) and name in node.names):
        return True
    if isinstance(node, ir.ImportFrom):
        return not node.names
    targets: tuple[ir.Expr | None, ...] = ()
    if isinstance(node, (ir.Assign, ir.Delete)):
        targets = node.targets
    elif isinstance(node, (ir.For, ir.Clause, ir.AugAssign, ir.NamedExpr, ir.WithItem)):
        targets = (node.target,)
    names = (n for target in targets if target is not None for n in ir.walk(target))
    return any(isinstance(each, ir.Name) and each.id == name for each in names)


def blocks(owner: ir.Node) -> Iterator[Block]:
    """Yield the suites of a compound statement, a function, a class or a module."""
    for name in ir.field_names(type(owner)):
        value = getattr(owner, name)
        if isinstance(value, tuple) and value and isinstance(value[0], STATEMENTS):
            yield Block(owner, value)
