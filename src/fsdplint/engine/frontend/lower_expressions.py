"""Expressions of a LibCST tree to those of the IR."""

from __future__ import annotations

import ast
import functools
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import libcst as cst

from fsdplint.engine import ir


def visit_methods(visitor: type) -> dict[type[cst.CSTNode], Callable[..., Any]]:
    """Return the methods called ``visit_<Node>`` of a class and its bases, by kind of node.

    The protocol is that of `libcst.CSTVisitor`, which itself costs 1.2 parses of a file, since it
    also visits whitespace, commas and parentheses; this costs 0.2, since each method visits the
    children that carry meaning. The methods return the lowered node.
    """
    names = [name for name in dir(visitor) if name.startswith("visit_")]
    return {getattr(cst, name.removeprefix("visit_")): getattr(visitor, name) for name in names}


class Expressions:
    """Lowers expressions.

    Args:
        spans: where nodes are.
        shift: the difference between offsets in the file and in the tree.
    """

    def __init__(self, spans: Mapping[cst.CSTNode, tuple[int, int]], shift: int) -> None:
        self.spans = spans
        self.shift = shift
        self.yields = False

    def at(self, node: cst.CSTNode) -> tuple[int, int]:
        span = self.spans.get(node)
        if span is None:  # a slice, say: as far as what it holds
            inner = [self.at(child) for child in node.children if child in self.spans]
            return (inner[0][0], inner[-1][1]) if inner else (0, 0)
        return span[0] + self.shift, span[1] + self.shift

    def optional(self, node: cst.BaseExpression | None) -> ir.Expr | None:
        return None if node is None else self.expr(node)

    def expr(self, node: cst.CSTNode) -> ir.Expr:
        visit = _VISIT.get(type(node))
        return self.opaque(node) if visit is None else visit(self, node)

    def opaque(self, node: cst.CSTNode) -> ir.Expr:
        nested = tuple(
            self.expr(child) for child in node.children if isinstance(child, cst.BaseExpression)
        )
        return ir.Opaque(*self.at(node), nested)

    def visit_Name(self, node: cst.Name) -> ir.Expr:
        if node.value in _SINGLETONS:
            return ir.Constant(*self.at(node), _SINGLETONS[node.value])
        return ir.Name(*self.at(node), node.value)

    def visit_Attribute(self, node: cst.Attribute) -> ir.Expr:
        return ir.Attribute(*self.at(node), self.expr(node.value), node.attr.value)

    def visit_Call(self, node: cst.Call) -> ir.Expr:
        literals = self.format_literals(node)
        if literals:
            values = tuple(self.expr(argument.value) for argument in node.args)
            return ir.FormattedString(*self.at(node), literals, values)
        return ir.Call(
            *self.at(node), self.expr(node.func), tuple(self.argument(arg) for arg in node.args)
        )

    def format_literals(self, node: cst.Call) -> tuple[str, ...]:
        """Return the text around the fields of ``"cuda:{}".format(rank)``, else nothing."""
        method = node.func
        if not isinstance(method, cst.Attribute) or method.attr.value != "format":
            return ()
        text = self.expr(method.value) if isinstance(method.value, cst.SimpleString) else None
        if not isinstance(text, ir.Constant) or not isinstance(text.value, str):
            return ()
        literals = tuple(text.value.split("{}"))
        plain = not any(argument.keyword or argument.star for argument in node.args)
        named = any(brace in literal for literal in literals for brace in "{}")
        return literals if plain and not named and len(literals) == len(node.args) + 1 else ()

    def argument(self, node: cst.Arg) -> ir.Argument:
        keyword = None if node.keyword is None else node.keyword.value
        return ir.Argument(*self.at(node), self.expr(node.value), keyword, node.star)

    def visit_Subscript(self, node: cst.Subscript) -> ir.Expr:
        indexes = [self.index(element.slice) for element in node.slice]
        single = len(indexes) == 1
        index = indexes[0] if single else ir.Collection(*self.at(node), "tuple", tuple(indexes))
        return ir.Subscript(*self.at(node), self.expr(node.value), index)

    def index(self, node: cst.BaseSlice) -> ir.Expr:
        if isinstance(node, cst.Index):
            return self.expr(node.value)
        return self.opaque(node)

    def visit_List(self, node: cst.List | cst.Tuple | cst.Set) -> ir.Expr:
        elements = tuple(self.element(element) for element in node.elements)
        return ir.Collection(*self.at(node), type(node).__name__.lower(), elements)

    visit_Tuple = visit_Set = visit_List

    def element(self, node: cst.BaseElement) -> ir.Expr:
        value = self.expr(node.value)
        if isinstance(node, cst.StarredElement):
            return ir.Starred(value.start, value.end, value)
        return value

    def visit_Dict(self, node: cst.Dict) -> ir.Expr:
        items = tuple(
            (
                self.expr(item.key) if isinstance(item, cst.DictElement) else None,
                self.expr(item.value),
            )
            for item in node.elements
        )
        return ir.DictDisplay(*self.at(node), items)

    def visit_ListComp(
        self, node: cst.ListComp | cst.SetComp | cst.GeneratorExp | cst.DictComp
    ) -> ir.Expr:
        clauses = tuple(self.clauses(node.for_in))
        kind = _COMPREHENSIONS[type(node)]
        if isinstance(node, cst.DictComp):
            key, element = self.expr(node.key), self.expr(node.value)
            return ir.Comprehension(*self.at(node), kind, key, element, clauses)
        return ir.Comprehension(*self.at(node), kind, None, self.expr(node.elt), clauses)

    visit_SetComp = visit_DictComp = visit_GeneratorExp = visit_ListComp

    def clauses(self, node: cst.CompFor | None) -> Iterable[ir.Clause]:
        while node is not None:
            conditions = tuple(self.expr(condition.test) for condition in node.ifs)
            yield ir.Clause(
                *self.at(node.target), self.expr(node.target), self.expr(node.iter), conditions
            )
            node = node.inner_for_in

    def visit_Lambda(self, node: cst.Lambda) -> ir.Expr:
        outer = self.yields
        value = self.expr(node.body)
        self.yields = outer
        body = ir.Return(value.start, value.end, value)
        parameters = self.parameters(node.params)
        lowered = ir.LoweredSuite((body,), False)
        suite = ir.Suite(value.start, value.end, lowered)
        function = ir.Function(*self.at(node), "<lambda>", parameters, suite, (), None)
        return ir.Lambda(*self.at(node), function)

    def visit_IfExp(self, node: cst.IfExp) -> ir.Expr:
        return ir.Conditional(
            *self.at(node), self.expr(node.test), self.expr(node.body), self.expr(node.orelse)
        )

    def visit_BooleanOperation(self, node: cst.BooleanOperation) -> ir.Expr:
        op = type(node.operator).__name__.lower()
        return ir.BoolOp(*self.at(node), op, self.expr(node.left), self.expr(node.right))

    def visit_UnaryOperation(self, node: cst.UnaryOperation) -> ir.Expr:
        operand = self.expr(node.expression)
        if isinstance(node.operator, cst.Not):
            return ir.Not(*self.at(node), operand)
        number = operand.value if isinstance(operand, ir.Constant) else None
        if isinstance(node.operator, cst.Minus) and isinstance(number, (int, float)):
            return ir.Constant(*self.at(node), -number)
        return ir.Opaque(*self.at(node), (operand,))

    def visit_Comparison(self, node: cst.Comparison) -> ir.Expr:
        at = self.at(node)
        left = self.expr(node.left)
        parts: list[ir.Expr] = []
        for target in node.comparisons:
            right = self.expr(target.comparator)
            parts.append(ir.Compare(*at, type(target.operator).__name__, left, right))
            left = right
        return functools.reduce(lambda a, b: ir.BoolOp(*at, "and", a, b), parts)

    def visit_BinaryOperation(self, node: cst.BinaryOperation) -> ir.Expr:
        op = type(node.operator).__name__
        return ir.BinOp(*self.at(node), op, self.expr(node.left), self.expr(node.right))

    def visit_SimpleString(
        self, node: cst.SimpleString | cst.Integer | cst.Float | cst.Imaginary
    ) -> ir.Expr:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # invalid escapes are for other linters
                return ir.Constant(*self.at(node), ast.literal_eval(node.value))
        except (SyntaxError, ValueError):  # "\\N{nope}": LibCST does not look into strings
            return ir.Opaque(*self.at(node), ())

    visit_Integer = visit_Float = visit_Imaginary = visit_SimpleString

    def visit_ConcatenatedString(self, node: cst.ConcatenatedString) -> ir.Expr:
        parts = [self.expr(node.left), self.expr(node.right)]
        values = [part.value for part in parts if isinstance(part, ir.Constant)]
        if len(values) == 2:
            joined = values[0] + values[1]  # type: ignore[operator]  # both str or both bytes
            return ir.Constant(*self.at(node), joined)
        return ir.FormattedString(*self.at(node), ("",) * 3, tuple(parts))

    def visit_FormattedString(self, node: cst.FormattedString) -> ir.Expr:
        literals, values = [""], []
        for part in node.parts:
            if isinstance(part, cst.FormattedStringText):
                literals[-1] += part.value.replace("{{", "{").replace("}}", "}")
            elif isinstance(part, cst.FormattedStringExpression):
                values.append(self.expr(part.expression))
                literals.append("")
        return ir.FormattedString(*self.at(node), tuple(literals), tuple(values))

    def visit_NamedExpr(self, node: cst.NamedExpr) -> ir.Expr:
        return ir.NamedExpr(*self.at(node), self.expr(node.target), self.expr(node.value))

    def visit_Await(self, node: cst.Await) -> ir.Expr:
        return ir.Yield(*self.at(node), "await", self.expr(node.expression))

    def visit_Yield(self, node: cst.Yield) -> ir.Expr:
        self.yields = True
        value = node.value
        if isinstance(value, cst.From):
            return ir.Yield(*self.at(node), "yield from", self.expr(value.item))
        return ir.Yield(*self.at(node), "yield", self.optional(value))

    def parameters(self, node: cst.Parameters) -> tuple[ir.Parameter, ...]:
        lowered = [
            self.parameter(param, "positional") for param in (*node.posonly_params, *node.params)
        ]
        if isinstance(node.star_arg, cst.Param):
            lowered.append(self.parameter(node.star_arg, "*"))
        lowered.extend(self.parameter(param, "keyword") for param in node.kwonly_params)
        if node.star_kwarg is not None:
            lowered.append(self.parameter(node.star_kwarg, "**"))
        return tuple(lowered)

    def parameter(self, node: cst.Param, kind: str) -> ir.Parameter:
        annotation = None if node.annotation is None else self.expr(node.annotation.annotation)
        default = None if node.default is None else self.expr(node.default)
        return ir.Parameter(*self.at(node.name), node.name.value, kind, default, annotation)


_SINGLETONS: dict[str, bool | None] = {"None": None, "True": True, "False": False}

_COMPREHENSIONS: dict[type[cst.CSTNode], str] = {
    cst.ListComp: "list",
    cst.SetComp: "set",
    cst.DictComp: "dict",
    cst.GeneratorExp: "generator",
}

_VISIT: dict[type[cst.CSTNode], Callable[..., ir.Expr]] = visit_methods(Expressions)
