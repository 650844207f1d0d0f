"""Modules of any shape that Python's grammar allows, in names that the checker knows."""

from __future__ import annotations

import ast
import copy
import warnings
from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from tests.fuzz.programs import Program

T = TypeVar("T")

_HEADER = """\
import os, torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard, FullyShardedDataParallel as FSDP
from torch.distributed.checkpoint.state_dict import get_model_state_dict
"""
_NAMES = (
    "model", "optimizer", "block", "rank", "x", "self", "torch", "dist", "nn", "fully_shard",
    "FSDP", "loader", "get_model_state_dict", "state", "loss", "range", "len", "print", "f",
    "Net", "args",
)  # fmt: skip
_ATTRIBUTES = (
    "parameters", "state_dict", "blocks", "forward", "no_sync", "step", "backward", "save", "optim",
    "AdamW", "get_rank", "all_reduce", "barrier", "named_modules", "load_state_dict", "weight",
    "data", "to", "Module", "Linear", "param_groups", "x", "cuda", "set_device", "eval", "train",
    "items", "unshard", "set_requires_gradient_sync", "append", "nn", "utils", "clip_grad_norm_",
    "environ",
)  # fmt: skip
_CONSTANTS = (
    0, 1, -1, 2**70, 1.5, 1e400, 3j, True, False, None, ..., "", "cuda", "RANK", b"x", "ü\n",
    "\x00",    "\ud83d\ude00", "a" * 300,
)  # fmt: skip
_BINARY = (
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.Div,
    ast.FloorDiv,
    ast.Mod,
    ast.Pow,
    ast.MatMult,
    ast.BitOr,
)
_COMPARED = (ast.Eq, ast.NotEq, ast.Lt, ast.Gt, ast.Is, ast.IsNot, ast.In, ast.NotIn)


class Writer:
    """Makes nodes at random, fewer the deeper they stand."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def some(self, make: Callable[[int], T], depth: int, least: int = 0, most: int = 3) -> list[T]:
        return [make(depth) for _ in range(self.random.randint(least, most))]

    def perhaps(self, make: Callable[[int], T], depth: int) -> T | None:
        return make(depth) if self.random.random() < 0.4 else None

    def name(self) -> str:
        return self.random.choice(_NAMES)

    # Expressions

    def expression(self, depth: int) -> ast.expr:
        simple: Sequence[Callable[[int], ast.expr]] = (
            self.load,
            self.load,
            self.constant,
            self.attribute,
        )
        nested = (
            self.call, self.call, self.call, self.attribute, self.binary, self.boolean,
            self.compare, self.lambda_, self.ternary, self.comprehension, self.display,
            self.subscript, self.text, self.unary, self.walrus,
        )  # fmt: skip
        return self.random.choice(nested if self.random.random() < depth / 4 else simple)(depth - 1)

    def load(self, depth: int) -> ast.expr:
        return ast.Name(self.name(), ast.Load())

    def constant(self, depth: int) -> ast.expr:
        return ast.Constant(self.random.choice(_CONSTANTS))

    def attribute(self, depth: int) -> ast.expr:
        return ast.Attribute(self.expression(depth), self.random.choice(_ATTRIBUTES), ast.Load())

    def call(self, depth: int) -> ast.expr:
        function = self.load(depth) if self.random.random() < 0.5 else self.attribute(depth)
        return ast.Call(
            function, self.some(self.item, depth), self.some(self.keyword, depth, most=1)
        )

    def keyword(self, depth: int) -> ast.keyword:
        name = None if self.random.random() < 0.2 else self.name()
        return ast.keyword(name, self.expression(depth))

    def item(self, depth: int) -> ast.expr:
        value = self.expression(depth)
        return ast.Starred(value, ast.Load()) if self.random.random() < 0.1 else value

    def binary(self, depth: int) -> ast.expr:
        operator = self.random.choice(_BINARY)()
        return ast.BinOp(self.expression(depth), operator, self.expression(depth))

    def unary(self, depth: int) -> ast.expr:
        operator = self.random.choice((ast.Not, ast.USub, ast.Invert))()
        return ast.UnaryOp(operator, self.expression(depth))

    def boolean(self, depth: int) -> ast.expr:
        operator = self.random.choice((ast.And, ast.Or))()
        return ast.BoolOp(operator, self.some(self.expression, depth, 2))

    def compare(self, depth: int) -> ast.expr:
        right = self.some(self.expression, depth, 1, 2)
        operators = [self.random.choice(_COMPARED)() for _ in right]
        return ast.Compare(self.expression(depth), operators, right)

    def lambda_(self, depth: int) -> ast.expr:
        return ast.Lambda(self.arguments(depth), self.expression(depth))

    def ternary(self, depth: int) -> ast.expr:
        return ast.IfExp(self.expression(depth), self.expression(depth), self.expression(depth))

    def walrus(self, depth: int) -> ast.expr:
        return ast.NamedExpr(ast.Name(self.name(), ast.Store()), self.expression(depth))

    def comprehension(self, depth: int) -> ast.expr:
        clause = ast.comprehension(
            self.target(depth), self.expression(depth), self.some(self.expression, depth, most=1), 0
        )
        if self.random.random() < 0.3:
            return ast.DictComp(self.expression(depth), self.expression(depth), [clause])
        kind = self.random.choice((ast.ListComp, ast.SetComp, ast.GeneratorExp))
        return kind(self.expression(depth), [clause])

    def display(self, depth: int) -> ast.expr:
        if self.random.random() < 0.3:
            keys = self.some(lambda d: self.perhaps(self.expression, d), depth)
            return ast.Dict(keys, [self.expression(depth) for _ in keys])
        if self.random.random() < 0.2:
            return ast.Set(self.some(self.item, depth, 1))
        kind = self.random.choice((ast.List, ast.Tuple))
        return kind(self.some(self.item, depth), ast.Load())

    def subscript(self, depth: int) -> ast.expr:
        index = self.expression(depth)
        if self.random.random() < 0.3:
            index = ast.Slice(
                self.perhaps(self.expression, depth), self.perhaps(self.expression, depth)
            )
        return ast.Subscript(self.expression(depth), index, ast.Load())

    def text(self, depth: int) -> ast.expr:
        value = ast.FormattedValue(self.load(depth), self.random.choice((-1, 114)), None)
        return ast.JoinedStr([ast.Constant("rank "), value])

    # Statements

    def body(self, depth: int) -> list[ast.stmt]:
        return self.some(self.statement, depth, 1, 4)

    def statement(self, depth: int) -> ast.stmt:
        simple: Sequence[Callable[[int], ast.stmt]] = (
            self.assign, self.assign, self.alone, self.alone, self.alone, self.augmented,
            self.small, self.leave, self.annotated,
        )  # fmt: skip
        nested = (
            self.if_, self.if_, self.for_, self.for_, self.while_, self.with_, self.try_,
            self.function, self.function, self.class_, self.match,
        )  # fmt: skip
        return self.random.choice(nested if self.random.random() < depth / 5 else simple)(depth - 1)

    def target(self, depth: int) -> ast.expr:
        kind = self.random.random()
        if kind < 0.6 or depth < 0:
            return ast.Name(self.name(), ast.Store())
        if kind < 0.8:
            return ast.Attribute(self.load(depth), self.random.choice(_ATTRIBUTES), ast.Store())
        if kind < 0.9:
            return ast.Subscript(self.load(depth), self.expression(1), ast.Store())
        return ast.Tuple(self.some(self.target, depth - 1, 1), ast.Store())

    def assign(self, depth: int) -> ast.stmt:
        return ast.Assign(self.some(self.target, depth, 1, 2), self.expression(3))

    def annotated(self, depth: int) -> ast.stmt:
        value = self.perhaps(self.expression, 2)
        return ast.AnnAssign(ast.Name(self.name(), ast.Store()), self.expression(1), value, 1)

    def augmented(self, depth: int) -> ast.stmt:
        operator = self.random.choice(_BINARY)()
        return ast.AugAssign(ast.Name(self.name(), ast.Store()), operator, self.expression(3))

    def alone(self, depth: int) -> ast.stmt:
        return ast.Expr(self.expression(4))

    def small(self, depth: int) -> ast.stmt:
        name = self.name()
        return self.random.choice(
            (
                ast.Pass(),
                ast.Break(),
                ast.Continue(),
                ast.Global([name]),
                ast.Nonlocal([name]),
                ast.Delete([ast.Name(name, ast.Del())]),
                ast.Assert(self.expression(2), self.perhaps(self.expression, 1)),
                ast.ImportFrom("torch.distributed.fsdp", [ast.alias("fully_shard", name)], 0),
                ast.ImportFrom("models", [ast.alias("*")], 0),
                ast.Import([ast.alias("torch.optim", name)]),
                ast.ImportFrom(None, [ast.alias(name)], self.random.randint(1, 3)),
            )
        )

    def leave(self, depth: int) -> ast.stmt:
        value = self.perhaps(self.expression, 3)
        return self.random.choice(
            (
                ast.Return(value),
                ast.Raise(self.perhaps(self.expression, 1), None),
                ast.Expr(ast.Yield(value)),
                ast.Expr(ast.Await(self.expression(2))),
                ast.Expr(ast.YieldFrom(self.expression(2))),
            )
        )

    def if_(self, depth: int) -> ast.stmt:
        return ast.If(self.expression(2), self.body(depth), self.perhaps(self.body, depth) or [])

    def for_(self, depth: int) -> ast.stmt:
        orelse = self.body(depth) if self.random.random() < 0.1 else []
        return ast.For(self.target(1), self.expression(2), self.body(depth), orelse, lineno=0)

    def while_(self, depth: int) -> ast.stmt:
        return ast.While(self.expression(2), self.body(depth), [])

    def with_(self, depth: int) -> ast.stmt:
        items = self.some(self.context, depth, 1, 2)
        return ast.With(items, self.body(depth), lineno=0)

    def context(self, depth: int) -> ast.withitem:
        return ast.withitem(self.expression(2), self.perhaps(self.target, 1))

    def try_(self, depth: int) -> ast.stmt:
        handlers = self.some(self.handler, depth, most=2)
        final = self.perhaps(self.body, depth) or ([] if handlers else [ast.Pass()])
        orelse = (self.perhaps(self.body, depth) or []) if handlers else []
        return ast.Try(self.body(depth), handlers, orelse, final)

    def handler(self, depth: int) -> ast.ExceptHandler:
        name = self.name() if self.random.random() < 0.5 else None
        return ast.ExceptHandler(self.expression(1), name, self.body(depth))

    def arguments(self, depth: int) -> ast.arguments:
        names = self.random.sample(_NAMES, self.random.randint(0, 5))
        each = [ast.arg(name, None) for name in names]
        cut = sorted(self.random.choices(range(len(each) + 1), k=4))
        first, middle, last = each[: cut[0]], each[cut[0] : cut[1]], each[cut[1] : cut[2]]
        rest = each[cut[2] :]
        star = rest.pop() if rest and self.random.random() < 0.5 else None
        stars = rest.pop() if rest and self.random.random() < 0.5 else None
        count = self.random.randint(0, len(first) + len(middle))
        defaults = [self.expression(1) for _ in range(count)]
        optional = [self.perhaps(self.expression, 1) for _ in last]
        return ast.arguments(first, middle, star, last, optional, stars, defaults)

    def function(self, depth: int) -> ast.stmt:
        kind = ast.AsyncFunctionDef if self.random.random() < 0.1 else ast.FunctionDef
        decorators = self.some(self.expression, 1, most=1)
        return kind(
            self.name(), self.arguments(depth), self.body(depth), decorators, None, lineno=0
        )

    def class_(self, depth: int) -> ast.stmt:
        bases = [self.load(0)] if self.random.random() < 0.5 else [_module()]
        return ast.ClassDef(
            self.name(), bases, self.some(self.keyword, 1, most=1), self.body(depth), []
        )

    def match(self, depth: int) -> ast.stmt:
        return ast.Match(self.expression(2), self.some(self.case, depth, 1, 2))

    def case(self, depth: int) -> ast.match_case:
        patterns: Sequence[ast.pattern] = (
            ast.MatchValue(ast.Constant(self.random.choice((0, "cuda")))),
            ast.MatchSingleton(None),
            ast.MatchSequence([ast.MatchAs(None, "x"), ast.MatchStar("rest")]),
            ast.MatchMapping([ast.Constant("k")], [ast.MatchAs(None, "v")], "more"),
            ast.MatchClass(self.load(0), [ast.MatchAs()], [], []),
            ast.MatchOr([ast.MatchValue(ast.Constant(1)), ast.MatchValue(ast.Constant(2))]),
        )
        pattern = self.random.choice(patterns)
        return ast.match_case(pattern, self.perhaps(self.expression, 1), self.body(depth))


def _module() -> ast.expr:
    return ast.Attribute(ast.Name("nn", ast.Load()), "Module", ast.Load())


def grammatical(random: Random) -> Program:
    """A module that compiles, of which nothing is known but that."""
    writer = Writer(random)
    text = _HEADER if random.random() < 0.9 else ""
    for _ in range(random.randint(2, 12)):
        module = ast.Module([writer.statement(4)], [])
        more = ast.unparse(ast.fix_missing_locations(module)) + "\n"
        if compiles(more):
            text += more
    return Program("grammatical", {"module.py": text})


def compiles(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, "program", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, OverflowError, RecursionError):
        return False
    return True


def spliced(random: Random, programs: Sequence[Program]) -> Program:
    """A program in which pieces of two programs stand in each other's place."""
    for _ in range(50):
        whole, other = random.choice(programs), random.choice(programs)
        path = random.choice(sorted(whole.files))
        target = ast.parse(whole.files[path])
        source = ast.parse(random.choice(sorted(other.files.values())))
        for _ in range(random.randint(1, 6)):
            _splice(target, source, random)
        try:
            text = ast.unparse(ast.fix_missing_locations(target)) + "\n"
        except (ValueError, TypeError, AttributeError):
            continue
        if compiles(text):
            return Program("spliced", {**whole.files, path: text})
    return programs[0]


def _splice(target: ast.Module, source: ast.Module, random: Random) -> None:
    """Puts an expression or a statement, of the one tree or the other, somewhere else."""
    giver = source if random.random() < 0.5 else target
    kind = ast.expr if random.random() < 0.5 else ast.stmt
    given = [node for node in ast.walk(giver) if isinstance(node, kind)]
    places = [
        (owner, field, index)
        for owner in ast.walk(target)
        for field, value in ast.iter_fields(owner)
        for index, each in enumerate(value if isinstance(value, list) else [value])
        if isinstance(each, kind)
    ]
    if not given or not places:
        return
    new = copy.deepcopy(random.choice(given))
    owner, field, index = random.choice(places)
    value = getattr(owner, field)
    if not isinstance(value, list):
        setattr(owner, field, new)
    elif kind is ast.stmt and random.random() < 0.5:
        value.insert(index, new)
    else:
        value[index] = new
