"""Lowering: every kind of statement and expression, its exact span, and what is not Python."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest
from helpers import STDLIB, dump, module, placed, stdlib_sample, texts

from fsdplint.engine import ir
from fsdplint.engine.frontend.lower import lower
from fsdplint.engine.frontend.lower_statements import without_suites
from fsdplint.engine.frontend.tree import Tree
from fsdplint.files.invalid import InvalidSyntax


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x", "Name('x')"),
        ("None", "Constant(None)"),
        ("True", "Constant(True)"),
        ("0x10", "Constant(16)"),
        ("1.5", "Constant(1.5)"),
        ("2j", "Constant(2j)"),
        ("-3", "Constant(-3)"),
        ("-x", "Opaque([Name('x')])"),
        ("...", "Opaque([])"),
        (r"r'\n'", r"Constant('\\n')"),
        ("b'a' b'b'", "Constant(b'ab')"),
        ("'a' \"b\" '''c'''", "Constant('abc')"),
        (
            "'a' f'{b}'",
            "FormattedString(['', '', ''], [Constant('a'), "
            "FormattedString(['', ''], [Name('b')])])",
        ),
        ("f'a{b}c{d!r:>8}'", "FormattedString(['a', 'c', ''], [Name('b'), Name('d')])"),
        ("f'{{a}}{b}'", "FormattedString(['{a}', ''], [Name('b')])"),
        ("f'plain'", "FormattedString(['plain'], [])"),
        ("a.b.c", "Attribute(Attribute(Name('a'), 'b'), 'c')"),
        ("f()", "Call(Name('f'), [])"),
        (
            "f(a, *b, c=d, **e)",
            "Call(Name('f'), [Argument(Name('a'), None, ''), Argument(Name('b'), None, '*'), "
            "Argument(Name('d'), 'c', ''), Argument(Name('e'), None, '**')])",
        ),
        ("a[b]", "Subscript(Name('a'), Name('b'))"),
        ("a[b, 1]", "Subscript(Name('a'), Collection('tuple', [Name('b'), Constant(1)]))"),
        ("a[b:c]", "Subscript(Name('a'), Opaque([Name('b'), Name('c')]))"),
        ("[a, *b]", "Collection('list', [Name('a'), Starred(Name('b'))])"),
        ("(a,)", "Collection('tuple', [Name('a')])"),
        ("()", "Collection('tuple', [])"),
        ("{a}", "Collection('set', [Name('a')])"),
        ("{'k': a, **b}", "DictDisplay([[Constant('k'), Name('a')], [None, Name('b')]])"),
        (
            "[a for b in c if d if e for f in g]",
            "Comprehension('list', None, Name('a'), [Clause(Name('b'), Name('c'), "
            "[Name('d'), Name('e')]), Clause(Name('f'), Name('g'), [])])",
        ),
        (
            "{a for b in c}",
            "Comprehension('set', None, Name('a'), [Clause(Name('b'), Name('c'), [])])",
        ),
        (
            "{k: v for k, v in c}",
            "Comprehension('dict', Name('k'), Name('v'), "
            "[Clause(Collection('tuple', [Name('k'), Name('v')]), Name('c'), [])])",
        ),
        (
            "f(a for b in c)",
            "Call(Name('f'), [Argument(Comprehension('generator', None, Name('a'), "
            "[Clause(Name('b'), Name('c'), [])]), None, '')])",
        ),
        (
            "lambda a, b=1: a",
            "Lambda(Function('<lambda>', [Parameter('a', 'positional', None, None), "
            "Parameter('b', 'positional', Constant(1), None)], [Return(Name('a'))], [], None, "
            "False))",
        ),
        ("a if b else c", "Conditional(Name('b'), Name('a'), Name('c'))"),
        ("a or b and c", "BoolOp('or', Name('a'), BoolOp('and', Name('b'), Name('c')))"),
        ("not a", "Not(Name('a'))"),
        ("a != b", "Compare('NotEqual', Name('a'), Name('b'))"),
        ("a is not None", "Compare('IsNot', Name('a'), Constant(None))"),
        ("a not in b", "Compare('NotIn', Name('a'), Name('b'))"),
        (
            "a < b >= c",
            "BoolOp('and', Compare('LessThan', Name('a'), Name('b')), "
            "Compare('GreaterThanEqual', Name('b'), Name('c')))",
        ),
        ("a + b * c", "BinOp('Add', Name('a'), BinOp('Multiply', Name('b'), Name('c')))"),
        ("a @ b", "BinOp('MatrixMultiply', Name('a'), Name('b'))"),
        ("(a := b)", "NamedExpr(Name('a'), Name('b'))"),
        ("await a", "Yield('await', Name('a'))"),
        ("yield", "Yield('yield', None)"),
        ("yield a", "Yield('yield', Name('a'))"),
        ("yield from a", "Yield('yield from', Name('a'))"),
    ],
)
def test_expressions(text: str, expected: str) -> None:
    (statement,) = module(f"{text}\n").body
    assert dump(statement) == f"Expression({expected})"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = b", "Assign([Name('a')], Name('b'))"),
        ("a = b.c = d", "Assign([Name('a'), Attribute(Name('b'), 'c')], Name('d'))"),
        ("a, *b = c", "Assign([Collection('tuple', [Name('a'), Starred(Name('b'))])], Name('c'))"),
        ("a: int = b", "Assign([Name('a')], Name('b'))"),
        ("a: int", "Declare(Name('a'), Name('int'))"),
        ("a //= b", "AugAssign(Name('a'), 'FloorDivide', Name('b'))"),
        ("return", "Return(None)"),
        ("return a, b", "Return(Collection('tuple', [Name('a'), Name('b')]))"),
        ("raise", "Raise(None)"),
        ("raise a from b", "Raise(Name('a'))"),
        ("assert a, b", "Assert(Name('a'))"),
        ("del a", "Delete([Name('a')])"),
        ("del a, b[0]", "Delete([Name('a'), Subscript(Name('b'), Constant(0))])"),
        ("global a, b", "Scope('global', ['a', 'b'])"),
        ("nonlocal a", "Scope('nonlocal', ['a'])"),
        ("pass", "Pass()"),
        ("break", "Break()"),
        ("continue", "Continue()"),
        ("import a.b, c as d", "Import([['a.b', None], ['c', 'd']])"),
        ("from a.b import c as d, e", "ImportFrom('a.b', 0, [['c', 'd'], ['e', None]])"),
        ("from ...a import (b,)", "ImportFrom('a', 3, [['b', None]])"),
        ("from . import a", "ImportFrom('', 1, [['a', None]])"),
        ("from a import *", "ImportFrom('a', 0, [])"),
        (
            "if a: b\nelif c: d\nelse: e",
            "If(Name('a'), [Expression(Name('b'))], "
            "[If(Name('c'), [Expression(Name('d'))], [Expression(Name('e'))])])",
        ),
        (
            "for a, b in c:\n    d\nelse:\n    e",
            "For(Collection('tuple', [Name('a'), Name('b')]), Name('c'), "
            "[Expression(Name('d'))], [Expression(Name('e'))])",
        ),
        ("async for a in b: c", "For(Name('a'), Name('b'), [Expression(Name('c'))], [])"),
        (
            "while a:\n    b\nelse:\n    c",
            "While(Name('a'), [Expression(Name('b'))], [Expression(Name('c'))])",
        ),
        (
            "with a as b, c: d",
            "With([WithItem(Name('a'), Name('b')), WithItem(Name('c'), None)], "
            "[Expression(Name('d'))])",
        ),
        ("async with a: b", "With([WithItem(Name('a'), None)], [Expression(Name('b'))])"),
        (
            "try: a\nexcept B as c: d\nexcept: e\nelse: f\nfinally: g",
            "Try([Expression(Name('a'))], [Handler(Name('B'), 'c', [Expression(Name('d'))]), "
            "Handler(None, None, [Expression(Name('e'))])], [Expression(Name('f'))], "
            "[Expression(Name('g'))])",
        ),
        (
            "try: a\nexcept* B: c",
            "Try([Expression(Name('a'))], [Handler(Name('B'), None, [Expression(Name('c'))])], "
            "[], [])",
        ),
        (
            "class A(B, c.D, metaclass=E):\n    x: int = 1",
            "ClassDef('A', [Name('B'), Attribute(Name('c'), 'D')], "
            "[Assign([Name('x')], Constant(1))], [])",
        ),
        (
            "@a\n@b.c(1)\ndef f(): pass",
            "FunctionDef(Function('f', [], [Pass()], [Name('a'), "
            "Call(Attribute(Name('b'), 'c'), [Argument(Constant(1), None, '')])], None, False))",
        ),
        (
            "async def f(a, /, b: int = 1, *c, d, e=2, **g) -> x: pass",
            "FunctionDef(Function('f', [Parameter('a', 'positional', None, None), "
            "Parameter('b', 'positional', Constant(1), Name('int')), "
            "Parameter('c', '*', None, None), Parameter('d', 'keyword', None, None), "
            "Parameter('e', 'keyword', Constant(2), None), "
            "Parameter('g', '**', None, None)], [Pass()], [], Name('x'), False))",
        ),
        ("type A = int", "Pass()"),
    ],
)
def test_statements(text: str, expected: str) -> None:
    (statement,) = module(f"{text}\n").body
    assert dump(statement) == expected


def test_statements_on_one_line_stand_apart() -> None:
    assert (
        dump(module("a; b = c\n").body) == "[Expression(Name('a')), Assign([Name('b')], Name('c'))]"
    )


def test_a_function_is_a_generator_by_its_own_yield_alone() -> None:
    source = "def f():\n    def g():\n        yield 1\n    return g\n"
    functions = [n for n in ir.walk(module(source)) if isinstance(n, ir.Function)]
    assert [(f.name, f.is_generator) for f in functions] == [("f", False), ("g", True)]


def test_a_lambda_is_its_own_generator() -> None:
    source = "def f():\n    return lambda: (yield)\n"
    functions = [n for n in ir.walk(module(source)) if isinstance(n, ir.Function)]
    assert functions[0].is_generator is False


@pytest.mark.parametrize(
    "text",
    [r'"\N{nope}"', r'"\x1"', 'b"é"', "1" * 5000],
    ids=["no such name", "short escape", "not ASCII", "too many digits"],
)
def test_a_literal_that_python_rejects_is_opaque(text: str) -> None:
    source = f"x = {text}\ny(x)\n"
    assert dump(module(source).body[0]) == "Assign([Name('x')], Opaque([]))"
    assert texts(source, ir.Opaque) == [text]


@pytest.mark.filterwarnings("error")
def test_an_invalid_escape_warns_nobody() -> None:
    assert dump(module(r'"\d"').body) == r"[Expression(Constant('\\d'))]"


def test_the_cases_of_a_match() -> None:
    source = """\
match x:
    case 1 if y:
        a
    case p.Q:
        b
    case None:
        c
    case [d, *_] | {"k": 1, **d}:
        f
    case Point(x=g) as h:
        i
    case r.S() | 2 as t:
        u
    case v | 3:
        w
    case j:
        k
    case _:
        l
"""
    (match,) = module(source).body
    assert isinstance(match, ir.Match)
    assert [(dump(case.test), dump(case.body)) for case in cases(match)] == [
        (
            "BoolOp('and', Matches([Pattern(Constant(1), None, False)], [], None), Name('y'))",
            "[Expression(Name('a'))]",
        ),
        (
            "Matches([Pattern(Attribute(Name('p'), 'Q'), None, False)], [], None)",
            "[Expression(Name('b'))]",
        ),
        ("Matches([Pattern(Constant(None), None, False)], [], None)", "[Expression(Name('c'))]"),
        (
            "Matches([Pattern(None, None, True), Pattern(None, None, True)], ['d', 'd'], None)",
            "[Expression(Name('f'))]",
        ),
        (
            "Matches([Pattern(None, Name('Point'), True)], ['h', 'g'], 'h')",
            "[Expression(Name('i'))]",
        ),
        (
            "Matches([Pattern(None, Attribute(Name('r'), 'S'), False),"
            " Pattern(Constant(2), None, False)], ['t'], 't')",
            "[Expression(Name('u'))]",
        ),
        ("Matches([], ['v'], None)", "[Expression(Name('w'))]"),
        ("Matches([], ['j'], 'j')", "[Expression(Name('k'))]"),
        ("Matches([], [], None)", "[Expression(Name('l'))]"),
    ]


def cases(match: ir.Match) -> list[ir.Case]:
    """The cases of a match statement, each of which is the last one's other arm."""
    found: list[ir.Case] = []
    arm = match.body
    while arm:
        (case,) = arm
        assert isinstance(case, ir.Case)
        found.append(case)
        arm = case.orelse
    return found


# Spans


@pytest.mark.parametrize(
    ("source", "kind", "expected"),
    [
        ("x = ((f)(a))  # c\n", ir.Call, ["(f)(a)"]),
        ("x = ((f)(a))  # c\n", ir.Assign, ["x = ((f)(a))"]),
        (
            "y = (  # c\n    f(\n        a,  # d\n    )\n)\n",
            ir.Call,
            ["f(\n        a,  # d\n    )"],
        ),
        ("f(a, *b, c = d, **e)\n", ir.Argument, ["a", "*b", "c = d", "**e"]),
        ("model.forward(x).loss\n", ir.Attribute, ["model.forward(x).loss", "model.forward"]),
        ("(model\n .forward)(x)\n", ir.Attribute, ["model\n .forward"]),
        ("@a.b\n@c(1)\ndef f(x=g()):\n    pass\n", ir.FunctionDef, ["def f(x=g()):\n    pass"]),
        ("@a.b\n@c(1)\ndef f(x=g()):\n    pass\n", ir.Call, ["g()", "c(1)"]),
        ("def f(a, *b: int, c=1): pass\n", ir.Parameter, ["a", "b", "c"]),
        ("async def f():\n\tawait g(\r\n)\n", ir.Yield, ["await g(\r\n)"]),
        ("if a:\r\n\tb()\r\nelse:\r\n\tc()\r\n", ir.Call, ["b()", "c()"]),
        ("if a:\n\t  b(1)\n\t  c(2)\n", ir.Call, ["b(1)", "c(2)"]),
        ("é = 'ü' + 名(\"🙂\")\nz(é)\n", ir.Call, ['名("🙂")', "z(é)"]),
        ("x = f'{a(1)}é{b(2)!r}'\n", ir.Call, ["a(1)", "b(2)"]),
        ("if (n := f(x)) > 1: pass\n", ir.NamedExpr, ["n := f(x)"]),
        ("with a() as b, (c()): pass\n", ir.WithItem, ["a()", "c()"]),
        ("with (\n    a() as b,\n    c(),\n): pass\n", ir.WithItem, ["a()", "c()"]),
        ("try:\n    a\nexcept (B, C) as d:\n    e\n", ir.Handler, ["except (B, C) as d:\n    e"]),
        ("match f(x):\n    case 1 if g(y):\n        h()\n", ir.Call, ["f(x)", "g(y)", "h()"]),
        ("a = 1; b(2) ; c\n", ir.Expression, ["b(2)", "c"]),
        ("[f(x) for x in g(y) if h(x)]\n", ir.Call, ["f(x)", "g(y)", "h(x)"]),
        ("x = lambda a: f(a)\n", ir.Lambda, ["lambda a: f(a)"]),
        ("x = [*a, b]\n", ir.Collection, ["[*a, b]"]),
        ("x = (a, b)\n", ir.Collection, ["a, b"]),
        ("f(a)\\\n  (b)\n", ir.Call, ["f(a)\\\n  (b)", "f(a)"]),
        ("\x0c\nf()\n", ir.Call, ["f()"]),
        ("\x0cf()\n", ir.Call, ["f()"]),
        ("try: a()\nexcept B : c( )\nd(\n )\n", ir.Call, ["a()", "c( )", "d(\n )"]),
        ("a[b():c, d:]\n", ir.Opaque, ["b():c", "d:"]),
        ("f()", ir.Call, ["f()"]),
    ],
)
def test_spans(source: str, kind: type[ir.Node], expected: list[str]) -> None:
    assert texts(source, kind) == expected
    assert module(source).exact


def test_elif_is_a_statement_of_its_own() -> None:
    source = "if a:\n    b\nelif c:\n    d\n"
    assert texts(source, ir.If) == [source[:-1], "elif c:\n    d"]


def test_a_module_spans_its_file() -> None:
    lowered = lower("# only a comment\n", "dir/x.py")
    assert (lowered.start, lowered.end, lowered.path) == (0, 17, "dir/x.py")
    assert lowered.body == ()
    assert lowered.exact


def test_children_are_within_their_parents() -> None:
    for node in ir.walk(module(Path(ir.__file__).read_text("utf-8"))):
        for child in ir.children(node):
            inside = node.start <= child.start <= child.end <= node.end
            assert inside or isinstance(node, _OUTGROWN), dump(node)


# Decorators stand above the `def`; a parameter and a clause span the name they bind.
_OUTGROWN = (ir.FunctionDef, ir.Function, ir.ClassDef, ir.Parameter, ir.Clause)


# What is not Python


@pytest.mark.parametrize(
    ("source", "line_start"),
    [
        ("x = (\n", 0),
        ("x = 1\ny = = 2\n", 6),
        ("é = 'ü'\r\ny = = 2\r\n", 9),
        ("def f():\nreturn 1\n", 9),
        ("x = 0777\n", 0),
        ("a\n\x00b\n", 0),
    ],
)
def test_invalid_syntax_says_on_which_line(source: str, line_start: int) -> None:
    with pytest.raises(InvalidSyntax) as caught:
        module(source)
    assert caught.value.offset == line_start
    assert caught.value.message == str(caught.value)
    assert "\n" not in caught.value.message


# Real files


@pytest.mark.parametrize(
    "path", stdlib_sample(), ids=lambda path: path.relative_to(STDLIB).as_posix()
)
def test_the_standard_library_lowers_exactly(path: Path) -> None:
    text = path.read_text("utf-8")
    lowered = lower(text, path.as_posix())
    names = [node for node in ir.walk(lowered) if isinstance(node, ir.Name)]
    assert [text[node.start : node.end] for node in names] == [node.id for node in names]
    assert lowered.exact


@pytest.mark.parametrize("path", stdlib_sample()[::3], ids=lambda path: path.name)
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
def test_suites_lowered_later_are_what_they_are_at_once(
    path: Path, newline: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = path.read_text("utf-8").replace("\n", newline)
    later = lower(text, "x.py")
    nodes = Tree("x.py", text, later).walk()
    waiting = [n for n in nodes if isinstance(n, ir.Function) and not n.suite.is_lowered]
    assert len(waiting) == len(without_suites(text)[1])
    whole = "fsdplint.engine.frontend.lower_statements.without_suites"
    monkeypatch.setattr(whole, lambda text: (text, {}))
    assert placed(later) == placed(lower(text, "x.py"))


def test_a_suite_that_the_parser_refuses_ends_every_path_through_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = f"def f():\n    x = 1{' ' * 200}\n    print(x)\ndef g():\n    f()\n"
    module = lower(text, "x.py")
    first = module.body[0]
    assert isinstance(first, ir.FunctionDef)
    monkeypatch.setattr("fsdplint.engine.frontend.lower_statements.parse", _refuse)
    assert [type(node) for node in first.function.body] == [ir.Raise]
    assert [(str(error), error.offset) for error in module.refused] == [("new", 13)]  # type: ignore[union-attr]  # an InvalidSyntax


def _refuse(text: str) -> NoReturn:
    raise InvalidSyntax("new", text.index("x = 1"))


def test_sources_of_an_attribute_are_not_those_of_its_neighbours() -> None:
    text = """\
args = parse(args)
args.name = model
args.rank, size = world()
seed(args.rank + size)
for _ in steps:
    show(args)
    args.step = 1
args.late = 2
for row, _ in rows:
    print(row)
"""
    lowered = module(text)
    tree = Tree("x.py", text, lowered)
    calls = [node for node in tree.walk() if isinstance(node, ir.Call)]
    found = {text[c.start : c.end]: {text[s.start : s.end] for s in tree.sources(c)} for c in calls}
    ranked = {"args = parse(args)", "args.rank, size = world()"}
    assert found["seed(args.rank + size)"] == {"seed(args.rank + size)", *ranked}
    assert found["show(args)"] == {"show(args)", *ranked, "args.name = model", "args.step = 1"}
    assert found["print(row)"] == {"print(row)", "rows"}
