"""Reaching definitions: what may have bound a variable by the time a statement runs.

The classic forward analysis over structured code; joins are unions of sets of definitions. Where
control flow is hard to follow (``break``, an exception, a context manager that may suppress one),
every definition on the way counts, so a set may be too large but never too small. An empty set
means that the end is not reached. A loop needs no fixpoint: all definitions in it are taken to
reach its start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.engine.frontend.tree import Tree


@dataclass(frozen=True, slots=True)
class Unbound:
    """The definition on a path on which nothing has bound the variable."""


UNBOUND = Unbound()
Definition = ir.Node | Unbound
Definitions = frozenset[Definition]
_NONE: Definitions = frozenset()
# Context managers that propagate exceptions, by the last part of their name.
_TRANSPARENT = frozenset(
    {
        "autocast",
        "device",
        "inference_mode",
        "no_grad",
        "nullcontext",
        "no_sync",
        "open",
        "profile",
        "set_grad_enabled",
        "state_dict_type",
        "summon_full_params",
        "tqdm",
    }
)


@dataclass(frozen=True, slots=True)
class Reaching:
    """The definitions of a variable that may reach a statement of its scope, and the scope's end.

    Attributes:
        at_end: empty if the scope only ends by ``return`` or an exception.
    """

    before: Definitions
    at_end: Definitions


def reaching(
    tree: Tree, scope: ir.Function | ir.Module | ir.ClassDef, variable: str, at: ir.Stmt | None
) -> Reaching:
    """Return what may have bound ``variable``, a name or ``self.name``, when ``at`` runs."""
    flow = _Flow(tree, variable, at)
    parameters = scope.parameters if isinstance(scope, ir.Function) else ()
    given: list[Definition] = [each for each in parameters if each.name == variable]
    end = flow.block(scope.body, frozenset(given or [UNBOUND]))
    return Reaching(frozenset(flow.found), end)


def falls_through(tree: Tree, function: ir.Function) -> bool:
    """True if a function may end without a ``return``, so that its result is None."""
    return bool(reaching(tree, function, "", None).at_end)


class _Flow:
    def __init__(self, tree: Tree, variable: str, at: ir.Stmt | None) -> None:
        self.tree = tree
        self.variable = variable
        self.at = at
        self.found: set[Definition] = set()

    def block(self, statements: Iterable[ir.Stmt], coming: Definitions) -> Definitions:
        for statement in statements:
            if statement is self.at:
                self.found |= coming
            coming = self.statement(statement, coming)
        return coming

    def statement(self, node: ir.Stmt, coming: Definitions) -> Definitions:
        """Return the definitions after a statement, given those before it."""
        if isinstance(node, (ir.Return, ir.Raise, ir.Break, ir.Continue)):
            self.expressions(node, coming)
            return _NONE
        if isinstance(node, (ir.If, ir.Case)):
            coming |= self.bound_inside((node.test,))
            return self.block(node.body, coming) | self.block(node.orelse, coming)
        if isinstance(node, (ir.For, ir.While)):
            return self.loop(node, coming)
        if isinstance(node, ir.With):
            return self.with_(node, coming)
        if isinstance(node, ir.Try):
            return self.try_(node, coming)
        if isinstance(node, ir.Match):
            coming |= self.bound_inside((node.subject,))
            return coming | self.block(node.body, coming)
        return self.expressions(node, coming)

    def expressions(self, node: ir.Stmt, coming: Definitions) -> Definitions:
        """Return the definitions after a simple statement: what it binds hides earlier ones."""
        if isinstance(node, ir.Delete) and self.binds(node):
            return frozenset({UNBOUND})
        if isinstance(node, ir.ImportFrom) and not node.names:
            return coming | {node}
        if self.binds(node):
            return frozenset({node})
        return coming | (_NONE if _nests(node) else self.bound_inside((node,)))

    def loop(self, node: ir.For | ir.While, coming: Definitions) -> Definitions:
        coming |= self.all_definitions((node,))
        self.block(node.body, frozenset({node}) if self.binds(node) else coming)
        return coming | self.block(node.orelse, coming)

    def with_(self, node: ir.With, coming: Definitions) -> Definitions:
        begun = coming
        if any(self.binds(item) for item in node.items):
            begun = frozenset(item for item in node.items if self.binds(item))
        end = self.block(node.body, begun | self.bound_inside(node.items))
        if all(_lets_through(item.value) for item in node.items):
            return end
        return end | begun | self.all_definitions(node.body)

    def try_(self, node: ir.Try, coming: Definitions) -> Definitions:
        """Return the definitions after a ``try``; a handler may start after any part of the body.

        The ``finally`` block runs after an exception, too. It is analyzed with all definitions to
        record those that reach ``at``, and a second time, without recording, for what follows a
        ``try`` that ends normally.
        """
        raised = coming | self.all_definitions(node.body)
        end = self.block(node.orelse, self.block(node.body, coming))
        for handler in node.handlers:
            caught = frozenset({handler}) if self.variable == handler.name else raised
            left = self.block(handler.body, caught)
            end |= frozenset({UNBOUND}) if left and self.variable == handler.name else left
        if not node.final:
            return end
        last = self.block(
            node.final, raised | end | self.all_definitions((*node.handlers, *node.orelse))
        )
        return self.without_recording(node.final, end) if last else _NONE

    def without_recording(self, statements: Sequence[ir.Stmt], coming: Definitions) -> Definitions:
        """Analyze a block a second time, leaving `found` as it is."""
        at, self.at = self.at, None
        end = self.block(statements, coming)
        self.at = at
        return end

    def all_definitions(self, nodes: Iterable[ir.Node]) -> Definitions:
        """Return all definitions below ``nodes``, outside of nested functions and classes."""
        bound = [node for node in ir.walk_scope(*nodes) if self.binds(node)]
        gone = any(isinstance(node, (ir.Delete, ir.Handler)) for node in bound)
        return frozenset([*bound, *([UNBOUND] if gone else [])])

    def bound_inside(self, nodes: Iterable[ir.Node]) -> Definitions:
        """Return the definitions by ``:=`` and by patterns in expressions."""
        kinds = (ir.NamedExpr, ir.Matches)
        found = (node for node in ir.walk_scope(*nodes) if isinstance(node, kinds))
        return frozenset(node for node in found if self.binds(node))

    def binds(self, node: ir.Node) -> bool:
        return binds(self.tree, node, self.variable)


def binders(
    tree: Tree, scope: ir.Function | ir.Module | ir.ClassDef, variable: str
) -> list[ir.Node]:
    """Return every node of a scope that binds a variable, parameters included."""
    parameters = scope.parameters if isinstance(scope, ir.Function) else ()
    given: list[ir.Node] = [each for each in parameters if each.name == variable]
    return given + [node for node in tree.nodes_of(scope) if binds(tree, node, variable)]


def binds(tree: Tree, node: ir.Node, variable: str) -> bool:
    """True if ``node`` itself gives a variable, or ``self.name``, another value."""
    return variable in ir.names_bound(node) or any(
        tree.slice(each) == variable for each in targets(node)
    )


def targets(node: ir.Node) -> Iterator[ir.Expr]:
    """Yield the variables and attributes that a statement, a context or ``:=`` assigns to."""
    queue: list[ir.Node | None] = []
    if isinstance(node, (ir.Assign, ir.Delete)):
        queue = list(node.targets)
    elif isinstance(node, (ir.For, ir.AugAssign, ir.WithItem, ir.NamedExpr)):
        queue = [node.target]
    while queue:
        target = queue.pop()
        if isinstance(target, (ir.Name, ir.Attribute)):
            yield target
        elif isinstance(target, (ir.Collection, ir.Starred)):
            queue.extend(ir.children(target))


def _nests(node: ir.Stmt) -> bool:
    return isinstance(node, (ir.FunctionDef, ir.ClassDef))


def _lets_through(context: ir.Expr) -> bool:
    """True if a context manager surely propagates an exception that is raised in it."""
    called = context.func if isinstance(context, ir.Call) else context
    return ir.last_name(called) in _TRANSPARENT
