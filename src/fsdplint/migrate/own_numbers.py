"""Numbers that each rank has of its own: losses of its part of the data, and times."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Set
from functools import lru_cache

from fsdplint.engine import ir
from fsdplint.engine.must.definitions import targets
from fsdplint.fixes.code import Code
from fsdplint.fixes.names import dotted
from fsdplint.knowledge.ranks import TIMERS
from fsdplint.knowledge.tensors import COUNTS_OF, DESCRIBES
from fsdplint.migrate.step import Context

# The function that a migration defines.
MEAN = "mean_over_ranks"
_ADDS = frozenset({"append", "extend", "update"})

Scope = ir.Function | ir.ClassDef | ir.Module
Variable = tuple[str, ir.Node, str]


def losses(node: ir.Node) -> Iterator[str]:
    """Yield what gradients are computed of by a call."""
    func = node.func if isinstance(node, ir.Call) else None
    if isinstance(func, ir.Attribute) and func.attr == "backward":
        yield from filter(None, map(dotted, ir.walk(func.value)))


class OwnNumbers:
    """The variables, and the functions, whose numbers differ between ranks.

    Names are followed through functions and their parameters, not through time: a variable that is
    made the mean over all ranks counts as such everywhere in its function.

    Args:
        agreed: further variables that are made the mean.
        names: what yields the variables that have such a number by what a node does.
        calls: the functions that return one, by canonical name.
        forwards: calls of models that return one.
    """

    def __init__(
        self,
        context: Context,
        agreed: Collection[Variable] = (),
        names: Callable[[ir.Node], Iterable[str]] = losses,
        calls: Set[str] = TIMERS,
        forwards: Set[ir.Node] = frozenset(),
    ) -> None:
        self.context = context
        self._names_of = names
        self._calls = calls
        self.codes = list(context.codes(""))
        self._forwards = forwards
        self._agreed = {*agreed, *self._means()}
        self._variables: set[Variable] = set()
        self._chosen: set[Variable] = set()
        self._functions: set[str] = set()
        self._given: set[tuple[str, str]] = set()
        size = -1
        while size != len(self._variables) + len(self._functions) + len(self._given):
            size = len(self._variables) + len(self._functions) + len(self._given)
            for code in self.codes:
                for scope in _scopes(code):
                    self._follow(code, scope)

    def _means(self) -> Iterator[Variable]:
        for code in self.codes:
            for scope in _scopes(code):
                every = (pair for node in code.nodes_of(scope) for pair in set_by(node))
                yield from (variable(code, scope, name) for name, v in every if _is_mean(v))

    def has(self, code: Code, value: ir.Node) -> bool:
        """True if an expression may have another value on other ranks."""
        if isinstance(value, ir.Lambda) or _is_mean(value):
            return False
        described = value.func if isinstance(value, ir.Call) else value
        if isinstance(described, ir.Attribute) and described.attr in DESCRIBES | COUNTS_OF:
            return False
        if isinstance(value, ir.Call) and ir.last_name(value.func) == "len" and value.args:
            counted = dotted(value.args[0].value) or ""
            return variable(code, code.scope(value), counted) in self._chosen
        if isinstance(value, ir.Call) and (
            value in self._forwards
            or self.context.name(code, value.func) in self._calls
            or ir.last_name(value.func) in self._functions
        ):
            return True
        name = _named(value)
        if name and self._is_own(code, name, value):
            return True
        return any(self.has(code, each) for each in ir.children(value))

    def _is_own(self, code: Code, name: str, use: ir.Node) -> bool:
        scope = code.scope(use)
        found = variable(code, scope, name)
        given = isinstance(scope, ir.Function) and (scope.name, name) in self._given
        return found not in self._agreed and (given or found in self._variables)

    def _follow(self, code: Code, scope: Scope) -> None:
        nodes = code.nodes_of(scope)
        first = {name for node in nodes for name in self._names_of(node)}
        for node in nodes:
            for name, value in set_by(node):
                chosen = self._is_chosen(code, node)
                if chosen:
                    self._chosen.add(variable(code, scope, name))
                if chosen or name in first or self.has(code, value):
                    self._variables.add(variable(code, scope, name))
            returned = node.value if isinstance(node, ir.Return) else None
            own = returned is not None and self.has(code, returned)
            if isinstance(scope, ir.Function) and (own or self._is_return_chosen(code, node)):
                self._functions.add(scope.name)
            if isinstance(node, ir.Call):
                self._pass(code, node)

    def _is_chosen(self, code: Code, node: ir.Node) -> bool:
        """True if a test by such a number decides whether a statement runs."""
        tests = (each.test for each in code.ancestors(node) if isinstance(each, ir.If))
        return any(self.has(code, test) for test in tests)

    def _is_return_chosen(self, code: Code, node: ir.Node) -> bool:
        return isinstance(node, ir.Return) and self._is_chosen(code, node)

    def _pass(self, code: Code, call: ir.Call) -> None:
        """Note the parameters that get such a number by a call."""
        own = [i for i, each in enumerate(call.args) if self.has(code, each.value)]
        if not own:
            return
        called = self._names(code, call)
        for other in self.codes:
            for function in other.functions:
                if function.name in called:
                    names = [each.name for each in function.parameters]
                    names = names[1:] if names[:1] == ["self"] else names
                    for index in own:
                        keyword = call.args[index].keyword
                        given = [keyword] if keyword else names[index : index + 1]
                        self._given |= {(function.name, n) for n in given if n in names}

    def _names(self, code: Code, call: ir.Call) -> set[str]:
        """Return what the function of a call may be named: ``__call__`` for an object."""
        text = dotted(call.func)
        is_object = text in _assigned(code)
        return {"__call__" if is_object and text else ir.last_name(call.func) or ""}


@lru_cache(maxsize=256)
def _assigned(code: Code) -> frozenset[str | None]:
    """Return the texts of what the assignments of a file set."""
    made = (node for node in ir.walk(code.module) if isinstance(node, ir.Assign))
    return frozenset(dotted(target) for node in made for target in node.targets)


def _scopes(code: Code) -> Iterator[Scope]:
    yield code.module
    yield from code.functions


def variable(code: Code, scope: Scope, name: str) -> Variable:
    """Return a variable of the scope that binds it; an attribute of an object is its class's."""
    if name.startswith("self."):
        return code.path, code.scope(scope), name
    first = re.split(r"[.\[]", name)[0]
    while not isinstance(scope, ir.Module) and (first in code.shared or first not in _bound(scope)):
        scope = code.scope(scope)
    return code.path, scope, name


@lru_cache(maxsize=1024)
def _bound(scope: ir.Function | ir.ClassDef) -> frozenset[str]:
    parameters = scope.parameters if isinstance(scope, ir.Function) else ()
    nodes = list(ir.walk_scope(*ir.children(scope)))
    assigned = (dotted(target) or "" for node in nodes for target in targets(node))
    names = (name for node in nodes for name in ir.names_bound(node))
    return frozenset((*(each.name for each in parameters), *assigned, *names))


def _named(node: ir.Node) -> str:
    """Return a variable, an attribute, or an entry by a constant key; "" for anything else."""
    if isinstance(node, ir.Subscript) and isinstance(node.index, ir.Constant):
        whole = dotted(node.value)
        return f"{whole}[{node.index.value!r}]" if whole else ""
    return dotted(node) or ""


def _is_mean(value: ir.Node) -> bool:
    return isinstance(value, ir.Call) and ir.last_name(value.func) == MEAN


def set_by(node: ir.Node) -> Iterator[tuple[str, ir.Expr]]:
    """Yield the variables that a node sets, or adds to, with what."""
    if isinstance(node, ir.Assign):
        for target in node.targets:
            yield from _pairs(target, node.value)
    elif isinstance(node, ir.AugAssign):
        yield _named(node.target), node.value
    elif isinstance(node, ir.Call) and isinstance(node.func, ir.Attribute):
        given = node.args if node.func.attr in _ADDS else ()
        yield from ((_named(node.func.value), each.value) for each in given)


def _pairs(target: ir.Expr, value: ir.Expr) -> Iterator[tuple[str, ir.Expr]]:
    if not isinstance(target, ir.Collection):
        yield _named(target), value
        return
    values = value.elements if isinstance(value, ir.Collection) else ()
    same = len(values) == len(target.elements)
    for index, each in enumerate(target.elements):
        yield _named(each), values[index] if same else value
