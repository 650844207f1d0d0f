from __future__ import annotations

import pytest
from snippets import Snippet

from fsdplint.engine import ir
from fsdplint.engine.frontend.lower import lower
from fsdplint.fixes.code import Code, NoFixError
from fsdplint.fixes.edits import apply


def code(text: str) -> Code:
    return Code("/a.py", text, lower(text, "/a.py"))


def extent(text: str, index: int) -> str:
    file = code(text)
    start, end = file.extent(file.module.body[index])
    return text[start:end]


@pytest.mark.parametrize(
    ("text", "index", "lines"),
    [
        ("a\nb\nc\n", 1, "b\n"),
        ("a\r\nb  # t\r\nc\r\n", 1, "b  # t\r\n"),
        ("a\n# own\n# own\nb\n", 1, "# own\n# own\nb\n"),
        ("a\n# other\n\n# own\nb\n", 1, "# own\nb\n"),
        ("#!/usr/bin/python\n# own\nb\n", 0, "# own\nb\n"),
        ("# -*- coding: utf-8 -*-\nb\n", 0, "b\n"),
        ("a\n# %%\nb\n", 1, "b\n"),
        ("a\n# fmt: off\nb\n", 1, "b\n"),
        ("a\nb", 1, "b"),
        ("# up\n@deco\n# inner\n@other(1)\ndef f():\n    pass\n", 0, None),
        ("def f():\n    pass\n    # in f\n# not in f\nb\n", 0, "def f():\n    pass\n    # in f\n"),
        ("if x:\n    a\n  # deep\nb\n", 0, "if x:\n    a\n  # deep\n"),
        ("x = f(  # t\n    1,\n)  # e\nb\n", 0, "x = f(  # t\n    1,\n)  # e\n"),
    ],
)
def test_comments_belong_to_their_statement(text: str, index: int, lines: str | None) -> None:
    assert extent(text, index) == (text if lines is None else lines)


@pytest.mark.parametrize("text", ["a; b\n", "a; \\\n  b\n", "x = 1; \\\nb\n"])
@pytest.mark.parametrize("index", [0, 1])
def test_a_shared_line_has_no_extent(text: str, index: int) -> None:
    with pytest.raises(NoFixError, match="shares its line with other code; put it on its own line"):
        extent(text, index)


def test_a_one_line_suite_and_an_elif_have_no_extent() -> None:
    file = code("if x: a\nelif y:\n    b\n")
    outer = file.module.body[0]
    assert isinstance(outer, ir.If)
    with pytest.raises(NoFixError, match="`a` shares its line with other code"):
        file.extent(outer.body[0])
    with pytest.raises(NoFixError, match="`elif y:` is a branch of a larger statement"):
        file.extent(outer.orelse[0])


def test_statement_block_and_function_of_an_expression() -> None:
    at = Snippet(
        "class A:\n    def f(self):\n        if x:\n            y = [<n:g(z):n>]\n        w\n"
    )
    statement = at.code.statement(at["n"])
    assert at.code.slice(statement) == "y = [g(z)]"
    assert at.code.slice(at.code.block(statement).owner).startswith("if x")
    function = at.code.function(at["n"])
    assert function is not None and function.name == "f"
    assert at.code.functions == (function,)


def test_a_lambda_is_part_of_its_statement() -> None:
    at = Snippet("f = lambda: (\n    <n:g():n>\n)\n")
    assert at.code.slice(at.code.statement(at["n"])) == at.code.text.rstrip()


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("if x:\n\ty\n", "\t"),
        ("if x:\n  y\n", "  "),
        ("if x: y\nelse:\n   z\n", "   "),
        ("if x: y\nelif z: w\n", "    "),
        ("def f():\n  if x:\n      y\n", "  "),
        ("x\n", "    "),
    ],
)
def test_the_unit_of_indentation_is_the_first_block(text: str, unit: str) -> None:
    assert code(text).unit == unit


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_lines_put_after_an_unended_line(newline: str) -> None:
    file = code(f"a{newline}b")
    assert apply(file.text, [file.insert_lines(len(file.text), f"c{newline}")]) == (
        f"a{newline}b{newline}c"
    )


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("a\nX\nb\n", "a\nb\n"),
        ("a\n\nX\n\nb\n", "a\n\nb\n"),
        ("a\n\nX\n\n\nb\n", "a\n\n\nb\n"),
        ("a\n\n\nX\n\nb\n", "a\n\n\nb\n"),
        ("a\nX\n\nb\n", "a\n\nb\n"),
        ("a\n\nX\nb\n", "a\n\nb\n"),
        ("X\n\nb\n", "b\n"),
    ],
)
def test_deleted_lines_leave_no_extra_blank_ones(text: str, result: str) -> None:
    start = text.index("X")
    assert apply(text, [code(text).delete_lines(start, start + 2)]) == result


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("f(  # why\n    1,\n)\n", "f("),
        ('f("#")\n', 'f("#")'),
        ("if x:  # why\n    y\n", "if x:"),
        (f"f({'x' * 60})\n", f"f({'x' * 45}..."),
    ],
)
def test_a_reason_quotes_code_without_its_comment(text: str, short: str) -> None:
    file = code(text)
    assert file.short(file.module.body[0]) == short


@pytest.mark.parametrize(
    ("head", "after"),
    [("", "a()\nb()\n\nc()\n"), ("# why\n", "a()\n# why\n\n\nb()\n\nc()\n")],
)
def test_a_block_is_unwrapped_without_the_blank_lines_above_it(head: str, after: str) -> None:
    text = "a()\nwith x():\n\n  \n    b()\n\n    c()\n"
    file = code(text)
    block = file.module.body[1]
    assert isinstance(block, ir.With)
    assert apply(text, file.unwrapped(block, head)).replace("  \n", "\n") == after
