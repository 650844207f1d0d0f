"""Edits that leave the code beside them what it was, and edits that do not."""

from __future__ import annotations

import pytest

from fsdplint.finding import Edit, Span
from fsdplint.fixes.edits import apply
from fsdplint.fixes.intact import intact

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
    ],
)
def test_other_code_is_something_else(old: str, changes: Changes) -> None:
    assert not is_intact(old, changes)
