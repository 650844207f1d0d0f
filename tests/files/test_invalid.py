from __future__ import annotations

import pytest

from fsdplint.engine.frontend.syntax import parse
from fsdplint.files.invalid import InvalidSyntax, TooDemanding, expect_parsable
from fsdplint.process.stack import deep

# Each took LibCST minutes, or its process, at 20,000 links.
CHAINS = {
    "sum": ("x = ", "a + ", "a"),
    "long sum": ("x = (\n", "a +\n", "a)"),
    "comparison": ("x = ", "a < ", "a"),
    "membership": ("x = ", "a in ", "a"),
    "and": ("x = ", "a and ", "a"),
    "attributes": ("x = a", ".b", ""),
    "calls": ("x = a", "()", ""),
    "subscripts": ("x = a", "[0]", ""),
    "ternaries": ("x = ", "a if b else ", "a"),
    "lambdas": ("x = ", "lambda: ", "a"),
    "not": ("x = ", "not ", "a"),
    "minus": ("x = ", "-", "a"),
    "power": ("x = ", "a ** ", "a"),
    "strings": ("x = (", "'a'\n", ")"),
    "comprehension": ("x = [a ", "for a in b ", "]"),
    "format string": ("x = f'{", "a + ", "a}'"),
    "raw format string": ("x = fr'{", "a + ", "a}'"),
    "format string that is raw": ("x = rF'{", "a + ", "a}'"),
    "format string of words": ("x = f'{", "a and ", "a}'"),
    "equality": ("x = ", "a == ", "a"),
    "inequality": ("x = ", "a!=", "a"),
    "ternaries of calls": ("x = ", "f(a) if b else ", "a"),
    "lambdas with parameters": ("x = ", "lambda a, b=(1, 2), *c: ", "a"),
}


@pytest.mark.parametrize(
    "text",
    [
        "x = f'" + "{{ a. }}" * 2_000 + "'\n",
        "x = f'" + "{{" * 2_000 + "a" + "}}" * 2_000 + "'\n",
        "x = f'" + "{a}. " * 2_000 + "'\n",
        "f(" + "a=lambda x, y: 0, " * 900 + ")\n",
        "f(" + "a == b, " * 2_000 + ")\n",
    ],
)
def test_what_is_long_but_no_chain_is_parsed(text: str) -> None:
    assert parse(text).exact


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_that_would_take_minutes_is_refused_at_once(name: str) -> None:
    before, link, after = CHAINS[name]
    with pytest.raises(TooDemanding, match="too deeply nested to parse"):
        parse(before + link * 20_000 + after)


@pytest.mark.parametrize("name", CHAINS)
def test_chains_that_are_not_refused_are_parsed(name: str) -> None:
    before, link, after = CHAINS[name]
    assert deep(lambda: parse(before + link * 330 + after)).exact


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("if x:\n  y\n" + "elif z:\n  y\n" * 3000, "too deeply nested to parse"),
        ("match x:\n" + "  case 1: y\n" * 3000, "too deeply nested to parse"),
        ("match x:\n  case " + "[" * 20 + "a" + "]" * 20 + ": pass", "too deeply nested"),
        ("match x:\n  case " + "{1: " * 11 + "a" + "}" * 11 + ": pass", "too deeply nested"),
        ("x = 1\n" * 200_000, "too large to parse"),
    ],
    ids=["elif", "cases", "pattern", "mapping pattern", "size"],
)
def test_other_text_that_would_take_too_much_is_refused(text: str, reason: str) -> None:
    with pytest.raises(TooDemanding, match=reason):
        parse(text)


@pytest.mark.parametrize("text", ["(" * 300 + ")" * 300, "(" * 100_000, "[{(" * 5_000])
def test_brackets_as_deep_as_no_python_takes_them_are_not_python(text: str) -> None:
    with pytest.raises(InvalidSyntax, match="too many nested brackets: Python allows 200"):
        parse(text)


def test_what_is_too_deep_for_the_stack_is_told() -> None:
    with pytest.raises(TooDemanding, match="too deeply nested to parse"):
        parse("x = " + "lambda: " * 900 + "a")


@pytest.mark.parametrize(
    "text",
    [
        "(" * 200 + ")" * 200,
        "x = '" + "(" * 999 + "'",
        "x = [" + "-1.5, " * 10_000 + "]",
        "x += a.b\n" * 10_000,
        "f(" + "a.b(c.d), " * 10_000 + ")",
        "# " + "a + " * 10_000,
        "x = (" + "'a'\n" * 900 + ")",
        "x = '''" + "a.b(c) + " * 5_000 + "'''",
        "x = 1; " * 10_000,
    ],
    ids=[
        "brackets",
        "text",
        "data",
        "lines",
        "calls",
        "comment",
        "strings",
        "docstring",
        "one line",
    ],
)
def test_long_ordinary_code_is_within_limits(text: str) -> None:
    expect_parsable(text)
