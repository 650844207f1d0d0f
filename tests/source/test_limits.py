from __future__ import annotations

import pytest

from fsdplint.source.invalid import InvalidSyntax
from fsdplint.source.limits import beyond_limits
from fsdplint.source.syntax import parse


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "(" * 300 + ")" * 300,
            "brackets are nested more than 200 deep, which Python does not allow",
        ),
        ("x = " + "a + " * 20_000 + "a", "a statement has more than 3000 operators"),
        ("x = (\n" + "a +\n" * 20_000 + "a)", "a statement has more than 3000 operators"),
        ("a" + ".b" * 10_000, "a statement has more than 3000 operators"),
        ("if x:\n  y\n" + "elif z:\n  y\n" * 3000, "there are more than 1000 elif branches"),
    ],
    ids=["brackets", "sum", "long sum", "attributes", "elif"],
)
def test_what_would_take_minutes_is_refused_at_once(text: str, reason: str) -> None:
    assert beyond_limits(text) == reason
    with pytest.raises(InvalidSyntax, match=reason.split(",")[0]):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 200 + ")" * 200,
        "x = '" + "(" * 999 + "'",
        "x = [" + "-1.5, " * 10_000 + "]",
        "x += a.b\n" * 10_000,
        "f(" + "a.b(c.d), " * 10_000 + ")",
        "# " + "a + " * 10_000,
    ],
    ids=["brackets", "text", "data", "lines", "calls", "comment"],
)
def test_long_ordinary_code_is_within_limits(text: str) -> None:
    assert beyond_limits(text) is None
