"""Edits that leave the code beside them what it was, and edits that do not."""

from __future__ import annotations

import pytest

from fsdplint.finding import Edit, Span
from fsdplint.fixes.edit_check import intact
from fsdplint.fixes.edits import apply

Changes = list[tuple[str, str]]


def is_intact(old: str, changes: Changes) -> bool:
    """Whether the rest is, when the first of each text becomes another."""
    edits = []
    for before, after in changes:
        start = old.index(before)
        edits.append(Edit(Span("a.py", start, start + len(before)), after))
    return intact(old, apply(old, edits), edits)


@pytest.mark.parametrize(
    ("old", "changes"),
    [
        ("m.forward(x)\ny = 1\n", [(".forward", "")]),
        ("a\nb\nc\n", [("b\n", ""), ("c\n", "c\nb\n")]),
        ("with m.no_sync():\n    f(x)\n", [("with m.no_sync():", "if True:")]),
        ("with m.no_sync():\n    f(x)\n", [("with m.no_sync():\n    f", "f")]),
        ("f(a, b)\n", [("b", "b, c")]),
        ("x = 1\rif y:\r\tz\r", [("1", "2"), ("z", "zz")]),
        ("'''a\n'''\nb\n", [("a\n", "aa\n\n")]),
        # blocks: another in the place of one that is touched, statements that are moved or indented
        (
            "with a:\n    f\n    g\n",
            [("with a:", "b()\ntry:"), ("    g\n", "    g\nfinally:\n    h\n")],
        ),
        ("if a:\n    f\n    g\n", [("    g\n", ""), ("if a", "g\nif a")]),
        ("f\ng\n", [("f", "if a:\n    f"), ("\ng", "\n    g")]),
        (
            "if a:\n    f\nelse:\n    g\n",
            [("    f\n", "    f\n    h\n"), ("    g", "    h\n    g")],
        ),
        ("f; g\n", [("f", "h")]),
        ("@a\ndef f():\n    g\n", [("def", "@b\ndef")]),
        # the code behind a return, docstrings, names
        ("def f():\n    return\n    g\n", [("return", "return 1")]),
        ("def f():\n    g\n", [("    g\n", "    g\n    return\n")]),
        ("'doc'\na\n", [("a", "import b\na")]),
        ("def f():\n    x = 1\n    return x\n", [("x = 1", "x = y = 1")]),
        ("def f():\n    g(x)\ndef h():\n    k\n", [("    k", "    x = 1\n    k")]),
        ("def f():\n    return x\n", [("def", "x = 1\ndef")]),
    ],
)
def test_other_code_is_what_it_was(old: str, changes: Changes) -> None:
    assert is_intact(old, changes)


@pytest.mark.parametrize(
    ("old", "changes"),
    [
        ("a\nb\nc = ''\n", [("a", "x = '''"), ("''", "'''")]),  # `b` is in a string
        ("a  ; b\n", [("a", "a  #")]),  # in a comment
        ("f(a, (b  , c))\n", [("a, ", "a, g")]),  # two arguments, and no tuple
        # `g` is of another block, of none, or of one more
        ("for a in b:\n    f\n    g\n", [("f\n", "f\nwhile c:\n")]),
        ("if a:\n    f\n    g\n", [("f\n", "f\nelse:\n")]),
        ("if a:\n    f\nelse:\n    g\n", [("else", "    f\nif b:\n    f\nelse")]),
        ("for a in b:\n    f\nelse:\n    g\n", [("else", "if b:\n    f\nelse")]),
        ("try:\n    f\n    g\nexcept E:\n    h\n", [("f\n", "f\nexcept F:\n")]),
        ("f; g\n", [("f", "if a: f")]),
        ("if a:\n    f\n    g\n", [("f\n", "f\nif b:\n")]),
        ("def f():\n    h\n    g\n", [("h\n", "h\ndef k():\n")]),
        # it is never run
        ("def f():\n    g\n", [("    g", "    return\n    g")]),
        ("for a in b:\n    f\n    g\n", [("    g", "    continue\n    g")]),
        ("f\ng\n", [("f", "raise a")]),
        # a docstring is none
        ("'doc'\nf\n", [("'doc'", "import a\n'doc'")]),
        ("def f():\n    'doc'\n", [("    'doc'", "    import a\n    'doc'")]),
        # a name means something else
        ("x = 1\ndef f():\n    g(x)\n    h()\n", [("    h", "    x = 2\n    h")]),
        ("def f():\n    x = 1\n    def g():\n        h\n        x\n", [("h", "x = 2")]),
        ("def f(block):\n    g(zip)\n    h\n", [("h", "for zip in block: h")]),
        ("f(zip)\ng\n", [("g", "zip = 1")]),
        ("class A:\n    f(x)\n    g\n", [("g", "x = 1")]),
    ],
)
def test_other_code_is_something_else(old: str, changes: Changes) -> None:
    assert not is_intact(old, changes)
