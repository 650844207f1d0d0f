"""Statements of a LibCST tree to those of the IR: one structural pass over what carries meaning.

Whitespace, punctuation, annotations of no consequence and type parameters are never visited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from types import MappingProxyType

import libcst as cst

from fsdplint.engine import ir
from fsdplint.engine.frontend.lower_expressions import Expressions, visit_methods
from fsdplint.engine.frontend.problem import is_python
from fsdplint.engine.frontend.syntax import Syntax, parse
from fsdplint.files.invalid import InvalidSyntax
from fsdplint.files.suites import blocks, code_only

Span = tuple[int, int]

_MIN_SUITE = 120  # characters below which parsing a suite apart takes longer


def without_suites(text: str) -> tuple[str, dict[int, Span]]:
    """Replace each outermost function's suite in ``text`` by a name of the same length.

    Returns:
        The text, and by the offset of each name the span that it replaces: from the first line of
            the suite, indented, to the end of its last statement.
    """
    parts: list[str] = []
    suites: dict[int, Span] = {}
    at = 0
    for block in blocks(code_only(text)):
        suite = block.suite
        if block.kind != "def" or suite is None or suite < at or block.end - suite < _MIN_SUITE:
            continue
        start = block.end - len(text[suite : block.end].lstrip(" \t\f"))
        parts += [text[at:start], "_" * (block.end - start)]
        suites[start] = suite, block.end
        at = block.end
    return "".join([*parts, text[at:]]), suites


# A function that lowers the statements between two offsets of a file.
LowerSuite = Callable[[int, int], ir.LoweredSuite]

_HOLDER = "if _:\n"


def lower_module(text: str, lower_later: LowerSuite) -> ir.LoweredSuite:
    """Lower the statements of a file; ``lower_later`` lowers suites of functions on demand.

    Raises:
        InvalidSyntax: if the text is not Python.
        TooDemanding: if it would take minutes, or the process's stack or memory.
    """
    skeleton, deferred = without_suites(text)
    if deferred and is_python(text):
        try:
            return _module(parse(skeleton), deferred, lower_later)
        except InvalidSyntax:
            pass  # ends of suites are read off the text, and the parser may see them otherwise
    return _module(parse(text), {}, lower_later)


def _module(
    syntax: Syntax, deferred: Mapping[int, Span], lower_later: LowerSuite
) -> ir.LoweredSuite:
    lowering = _Lowering(syntax.spans, 0, deferred, lower_later)
    return ir.LoweredSuite(lowering.block(syntax.tree.body), lowering.yields, syntax.exact)


def lower_suite(text: str, start: int) -> ir.LoweredSuite:
    """Lower the statements of a function's suite, which are all indented alike.

    Args:
        start: the offset of ``text`` in its file.

    Raises:
        InvalidSyntax: if LibCST rejects it; the offset is one in the file.
        TooDemanding: as `lower_module`.
    """
    try:
        syntax = parse(f"{_HOLDER}{text}\n")
    except InvalidSyntax as error:
        raise InvalidSyntax(error.message, start + error.offset - len(_HOLDER)) from error
    holder = syntax.tree.body[0]
    assert isinstance(holder, cst.If), "the holder is an if"
    lowering = _Lowering(syntax.spans, start - len(_HOLDER))
    return ir.LoweredSuite(lowering.suite(holder.body), lowering.yields, syntax.exact)


def _none_deferred(start: int, end: int) -> ir.LoweredSuite:
    raise AssertionError(f"nothing waits, but what is at {start}:{end}")


class _Lowering(Expressions):
    """Lowers statements, and leaves the suites of functions for later where it can.

    Args:
        deferred: the span of each such suite, by the offset of the name that replaces it.
    """

    def __init__(
        self,
        spans: Mapping[cst.CSTNode, Span],
        shift: int,
        deferred: Mapping[int, Span] = MappingProxyType({}),
        lower_later: LowerSuite = _none_deferred,
    ) -> None:
        super().__init__(spans, shift)
        self.deferred = deferred
        self.lower_later = lower_later

    def block(self, statements: Iterable[cst.CSTNode]) -> tuple[ir.Stmt, ...]:
        lowered: list[ir.Stmt] = []
        for statement in statements:
            if isinstance(statement, cst.SimpleStatementLine):
                lowered.extend(self.statement(small) for small in statement.body)
            else:
                lowered.append(self.statement(statement))
        return tuple(lowered)

    def suite(self, suite: cst.BaseSuite | None) -> tuple[ir.Stmt, ...]:
        if isinstance(suite, cst.IndentedBlock):
            return self.block(suite.body)
        if isinstance(suite, cst.SimpleStatementSuite):
            return tuple(self.statement(small) for small in suite.body)
        return ()

    def statement(self, node: cst.CSTNode) -> ir.Stmt:
        visit = _VISIT.get(type(node))
        return ir.Pass(*self.at(node)) if visit is None else visit(self, node)

    def visit_FunctionDef(self, node: cst.FunctionDef) -> ir.Stmt:
        function = ir.Function(
            *self.at(node),
            node.name.value,
            self.parameters(node.params),
            self.function_suite(node.body),
            self.decorators(node.decorators),
            None if node.returns is None else self.expr(node.returns.annotation),
        )
        return ir.FunctionDef(*self.at(node), function)

    def function_suite(self, node: cst.BaseSuite) -> ir.Suite:
        start, end = self.at(node.body[0])[0], self.at(node.body[-1])[1]
        if start in self.deferred:
            return ir.deferred_suite(*self.deferred[start], self.lower_later)
        outer, self.yields = self.yields, False
        lowered = ir.LoweredSuite(self.suite(node), self.yields)
        self.yields = outer
        return ir.Suite(start, end, lowered)

    def decorators(self, nodes: Sequence[cst.Decorator]) -> tuple[ir.Expr, ...]:
        return tuple(self.expr(node.decorator) for node in nodes)

    def visit_ClassDef(self, node: cst.ClassDef) -> ir.Stmt:
        return ir.ClassDef(
            *self.at(node),
            node.name.value,
            tuple(self.expr(base.value) for base in node.bases),
            self.suite(node.body),
            self.decorators(node.decorators),
        )

    def visit_Assign(self, node: cst.Assign) -> ir.Stmt:
        targets = tuple(self.expr(target.target) for target in node.targets)
        return ir.Assign(*self.at(node), targets, self.expr(node.value))

    def visit_AnnAssign(self, node: cst.AnnAssign) -> ir.Stmt:
        target = self.expr(node.target)
        if node.value is None:
            return ir.Declare(*self.at(node), target, self.expr(node.annotation.annotation))
        return ir.Assign(*self.at(node), (target,), self.expr(node.value))

    def visit_AugAssign(self, node: cst.AugAssign) -> ir.Stmt:
        op = type(node.operator).__name__.removesuffix("Assign")
        return ir.AugAssign(*self.at(node), self.expr(node.target), op, self.expr(node.value))

    def visit_Expr(self, node: cst.Expr) -> ir.Stmt:
        return ir.Expression(*self.at(node), self.expr(node.value))

    def visit_Return(self, node: cst.Return) -> ir.Stmt:
        return ir.Return(*self.at(node), self.optional(node.value))

    def visit_If(self, node: cst.If) -> ir.Stmt:
        orelse: tuple[ir.Stmt, ...] = ()
        if isinstance(node.orelse, cst.If):
            orelse = (self.visit_If(node.orelse),)
        elif node.orelse is not None:
            orelse = self.suite(node.orelse.body)
        return ir.If(*self.at(node), self.expr(node.test), self.suite(node.body), orelse)

    def visit_For(self, node: cst.For) -> ir.Stmt:
        return ir.For(
            *self.at(node),
            self.expr(node.target),
            self.expr(node.iter),
            self.suite(node.body),
            self.else_(node.orelse),
        )

    def visit_While(self, node: cst.While) -> ir.Stmt:
        return ir.While(
            *self.at(node), self.expr(node.test), self.suite(node.body), self.else_(node.orelse)
        )

    def else_(self, node: cst.Else | cst.Finally | None) -> tuple[ir.Stmt, ...]:
        return () if node is None else self.suite(node.body)

    def visit_With(self, node: cst.With) -> ir.Stmt:
        items = tuple(
            ir.WithItem(
                *self.at(item.item),
                self.expr(item.item),
                None if item.asname is None else self.expr(item.asname.name),
            )
            for item in node.items
        )
        return ir.With(*self.at(node), items, self.suite(node.body))

    def visit_Try(self, node: cst.Try | cst.TryStar) -> ir.Stmt:
        """Lower a ``try`` statement, with ``except`` or ``except*``."""
        handlers = tuple(
            ir.Handler(
                *self.at(handler),
                self.optional(handler.type),
                _asname(handler.name),
                self.suite(handler.body),
            )
            for handler in node.handlers
        )
        return ir.Try(
            *self.at(node),
            self.suite(node.body),
            handlers,
            self.else_(node.orelse),
            self.else_(node.finalbody),
        )

    visit_TryStar = visit_Try

    def visit_Match(self, node: cst.Match) -> ir.Stmt:
        start, end = self.at(node)
        subject, cases = self.expr(node.subject), tuple[ir.Stmt, ...]()
        for case in reversed(node.cases):
            test, body = self.case_test(case), self.suite(case.body)
            cases = (ir.Case(self.at(case)[0], end, test, body, cases),)
        return ir.Match(start, end, subject, cases)

    def case_test(self, node: cst.MatchCase) -> ir.Expr:
        pattern, names = node.pattern, tuple(_captured(node.pattern))
        patterns, whole = self.alternatives(pattern), _whole(pattern)
        matches = ir.Matches(*self.at(pattern), patterns, names, whole)
        if node.guard is None:
            return matches
        guard = self.expr(node.guard)
        return ir.BoolOp(matches.start, guard.end, "and", matches, guard)

    def alternatives(self, pattern: cst.MatchPattern) -> tuple[ir.Pattern, ...]:
        """Return the alternatives of a pattern; empty if one of them matches anything."""
        if isinstance(pattern, cst.MatchAs):
            return () if pattern.pattern is None else self.alternatives(pattern.pattern)
        if isinstance(pattern, cst.MatchOr):
            parts = [self.alternatives(each.pattern) for each in pattern.patterns]
            return () if () in parts else tuple(chain.from_iterable(parts))
        return (self.pattern(pattern),)

    def pattern(self, pattern: cst.MatchPattern) -> ir.Pattern:
        if isinstance(pattern, (cst.MatchValue, cst.MatchSingleton)):
            return ir.Pattern(*self.at(pattern), self.expr(pattern.value), None, False)
        if isinstance(pattern, cst.MatchClass):
            partly = bool(pattern.patterns or pattern.kwds)
            return ir.Pattern(*self.at(pattern), None, self.expr(pattern.cls), partly)
        return ir.Pattern(*self.at(pattern), None, None, True)

    def visit_Import(self, node: cst.Import) -> ir.Stmt:
        return ir.Import(*self.at(node), tuple(map(_alias, node.names)))

    def visit_ImportFrom(self, node: cst.ImportFrom) -> ir.Stmt:
        module = "" if node.module is None else _dotted(node.module)
        names = () if isinstance(node.names, cst.ImportStar) else tuple(map(_alias, node.names))
        return ir.ImportFrom(*self.at(node), module, len(node.relative), names)

    def visit_Raise(self, node: cst.Raise) -> ir.Stmt:
        return ir.Raise(*self.at(node), self.optional(node.exc))

    def visit_Assert(self, node: cst.Assert) -> ir.Stmt:
        return ir.Assert(*self.at(node), self.expr(node.test))

    def visit_Del(self, node: cst.Del) -> ir.Stmt:
        target = node.target
        items = target.elements if isinstance(target, cst.Tuple) else None
        targets = [target] if items is None else [item.value for item in items]
        return ir.Delete(*self.at(node), tuple(map(self.expr, targets)))

    def visit_Global(self, node: cst.Global | cst.Nonlocal) -> ir.Stmt:
        kind = "global" if isinstance(node, cst.Global) else "nonlocal"
        return ir.Scope(*self.at(node), kind, tuple(item.name.value for item in node.names))

    visit_Nonlocal = visit_Global

    def visit_Break(self, node: cst.Break) -> ir.Stmt:
        return ir.Break(*self.at(node))

    def visit_Continue(self, node: cst.Continue) -> ir.Stmt:
        return ir.Continue(*self.at(node))


def _alias(node: cst.ImportAlias) -> tuple[str, str | None]:
    return _dotted(node.name), _asname(node.asname)


def _asname(node: cst.AsName | None) -> str | None:
    return node.name.value if node is not None and isinstance(node.name, cst.Name) else None


def _dotted(node: cst.BaseExpression) -> str:
    if isinstance(node, cst.Attribute):
        return f"{_dotted(node.value)}.{node.attr.value}"
    return node.value if isinstance(node, cst.Name) else ""


def _whole(pattern: cst.MatchPattern) -> str | None:
    """Return the name that a pattern binds to the whole subject."""
    if isinstance(pattern, cst.MatchAs) and pattern.name is not None:
        return pattern.name.value
    return None


def _captured(pattern: cst.CSTNode) -> Iterator[str]:
    """Yield the names that a pattern binds."""
    if isinstance(pattern, (cst.MatchAs, cst.MatchStar)) and isinstance(pattern.name, cst.Name):
        yield pattern.name.value
    elif isinstance(pattern, cst.MatchMapping) and pattern.rest is not None:
        yield pattern.rest.value
    for child in pattern.children:
        yield from _captured(child)


_VISIT: dict[type[cst.CSTNode], Callable[..., ir.Stmt]] = visit_methods(_Lowering)
