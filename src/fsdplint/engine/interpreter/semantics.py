"""The tables of what the nodes of a program do: expressions, statements, and library calls."""

from __future__ import annotations

from collections.abc import Mapping

from fsdplint.engine import ir
from fsdplint.engine.interpreter import (
    access,
    branches,
    calls,
    definitions,
    expressions,
    loops,
    names,
    statements,
)
from fsdplint.engine.interpreter.effects import library_calls
from fsdplint.engine.interpreter.state import Evaluator, Executor, Semantics

_EXPRESSIONS: Mapping[type[ir.Node], Evaluator] = {
    ir.Name: names.variable,
    ir.Constant: expressions.constant,
    ir.Attribute: access.attribute,
    ir.Call: calls.call,
    ir.Subscript: access.subscript,
    ir.Collection: expressions.collection,
    ir.DictDisplay: expressions.dict_display,
    ir.Starred: expressions.starred,
    ir.Comprehension: expressions.comprehension,
    ir.Lambda: expressions.lambda_,
    ir.Conditional: branches.conditional,
    ir.BoolOp: expressions.bool_op,
    ir.Not: expressions.not_,
    ir.Compare: expressions.compare,
    ir.Matches: branches.matches,
    ir.BinOp: expressions.bin_op,
    ir.NamedExpr: expressions.named,
    ir.FormattedString: expressions.formatted,
    ir.Yield: expressions.yield_,
    ir.Opaque: expressions.opaque,
}

_STATEMENTS: Mapping[type[ir.Node], Executor] = {
    ir.Expression: statements.expression,
    ir.Assign: statements.assign,
    ir.Declare: statements.pass_,
    ir.AugAssign: statements.aug_assign,
    ir.Return: statements.return_,
    ir.Raise: statements.raise_,
    ir.Assert: statements.assert_,
    ir.Delete: statements.delete,
    ir.Scope: statements.scope,
    ir.Pass: statements.pass_,
    ir.Break: statements.break_,
    ir.Continue: statements.continue_,
    ir.FunctionDef: definitions.function_def,
    ir.ClassDef: definitions.class_def,
    ir.Import: names.import_,
    ir.ImportFrom: names.import_from,
    ir.If: branches.if_,
    ir.Match: branches.match,
    ir.Case: branches.if_,
    ir.For: loops.for_,
    ir.While: loops.while_,
    ir.With: statements.with_,
    ir.Try: statements.try_,
}

SEMANTICS = Semantics(
    evaluate=_EXPRESSIONS,
    execute=_STATEMENTS,
    library_call=library_calls.call,
    library_method=library_calls.method,
)
