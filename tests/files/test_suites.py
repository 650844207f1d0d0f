"""Blocks: where functions and classes stand, told from the text as CPython's parser tells it."""

from __future__ import annotations

import ast
import re
import sysconfig
from pathlib import Path

import pytest

from fsdplint.engine.frontend.lower_statements import without_suites
from fsdplint.files.suites import blocks, code_only


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1  # one\n", "x = 1       \n"),
        ("x = 'a#b'\n", 'x = """""\n'),
        ("x = '''a\n# b'''\n", 'x = """""""""""\n'),
        ("f'{a.b!r:{c}} d'\n", 'f""a.b!r:"c"""""\n'),
        ('rf"{a}"\n', 'rf""a""\n'),
        ("a + \\\nb\n", "a +   b\n"),
        ("a\r\nb\rc\n", "a \nb\nc\n"),
        ("# a\rb\r", "   \nb\n"),
        ("x = 'a\n", 'x = ""\n'),
        ('x = """a\n', 'x = """""'),
        (r"x = '\'' # b", 'x = """"    '),
    ],
)
def test_only_code_is_left(text: str, expected: str) -> None:
    assert code_only(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def f(): return 1\n", [("f", "def f(): return 1", None)]),
        ("def f():\n  a\n\n  # b\nc\n", [("f", "def f():\n  a", 9)]),
        ("@a\n@b(\n)\ndef f():\n  c;\n", [("f", "@a\n@b(\n)\ndef f():\n  c", 18)]),
        ("class A(B):\n  def f(self):\n    a\n", [("A", None, 12), ("A.f", None, 27)]),
        ("async def f(a, b={1: 2}) -> c[d:e]:\n\n  # a\n  g\n", [("f", None, 43)]),
        # A form feed begins a line anew.
        ("\fdef f():\n  a\nc\n", [("f", "\fdef f():\n  a", 10)]),
        ("def f():\n  a\n\f  b\nc\n", [("f", "def f():\n  a\n\f  b", 9)]),
        ("def f():\n  a(\nb\n)\n  c\nd\n", [("f", "def f():\n  a(\nb\n)\n  c", 9)]),
        ("def f():\n  '''\na\n'''\n  c\nd", [("f", "def f():\n  '''\na\n'''\n  c", 9)]),
        ("def f():\n\ta\n\tif b:\n\t\tc\n", [("f", None, 9)]),
        ("if a:\n  def f():\n    b\n  def g():\n    c\n", [("f", None, 17), ("g", None, 34)]),
        ("x = 'def f():'\n", []),
        ("define = 1\n", []),
        ("def f(\n", []),
        ("def f()\n  a\n", []),
    ],
)
def test_blocks(text: str, expected: list[tuple[str, str | None, int | None]]) -> None:
    found = []
    for block, (_, whole, _) in zip(blocks(code_only(text)), expected, strict=True):
        name = f"{block.parent.name}.{block.name}" if block.parent else block.name
        source = text[block.start : block.end] if whole else None
        found.append((name, source, block.suite))
    assert found == expected


def _offset(text: str, line: int, column: int) -> int:
    """The character offset of a line and of a column in UTF-8 bytes."""
    starts = [0, *(end.end() for end in re.finditer(r"\r\n|\r|\n", text))]
    return starts[line - 1] + len(text[starts[line - 1] :].encode()[:column].decode())


_STDLIB = Path(sysconfig.get_path("stdlib"))


@pytest.mark.parametrize("package", ["asyncio", "email", "json", "unittest", "xml"])
def test_blocks_end_where_cpython_says(package: str) -> None:
    for path in sorted((_STDLIB / package).rglob("*.py")):
        text = path.read_bytes().decode()
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        expected = sorted(
            (node.name, _offset(text, node.end_lineno or 0, node.end_col_offset or 0))
            for node in ast.walk(ast.parse(text))
            if isinstance(node, kinds)
        )
        found = sorted((block.name, block.end) for block in blocks(code_only(text)))
        assert found == expected, path


def test_a_skeleton_has_a_name_for_each_outermost_suite() -> None:
    long = "x" * 130
    text = f"""\
class A:
    def f(self):
        # why
        {long}

        def inner():
            {long}
    y = 1
def g(): {long}
def h():
    short
"""
    skeleton, suites = without_suites(text)
    ((name, (start, end)),) = suites.items()
    assert len(skeleton) == len(text)
    assert text[start:end].startswith(f"        {long}\n")
    assert text[start:end].endswith(f"            {long}")
    assert skeleton == text[:name] + "_" * (end - name) + text[end:]
