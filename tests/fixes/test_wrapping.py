from __future__ import annotations

import pytest

from fsdplint.fixes.wrapping import wrapped


@pytest.mark.parametrize(
    ("line", "lines"),
    [
        ("call(first, second)", ["call(first, second)"]),
        ("call(first, second, third)", ["call(", "  first, second, third", ")"]),
        (
            "name = call(first, second, third_one=4):",
            ["name = call(", "  first,", "  second,", "  third_one=4,", "):"],
        ),
        (
            '  call("a, (b", [one, two, three, four])',
            [
                "  call(",
                '    "a, (b",',
                "    [",
                "      one,",
                "      two,",
                "      three,",
                "      four,",
                "    ],",
                "  )",
            ],
        ),
        (
            "call(item for item in range(limit))",
            ["call(", "  item for item in range(", "    limit", "  )", ")"],
        ),
        (
            "x = (first_long_name + second_long_name)",
            ["x = (", "  first_long_name + second_long_name", ")"],
        ),
        ("values[first_long_name, second_name]", ["values[first_long_name, second_name]"]),
        ("first_long_name + second_long_name", ["first_long_name + second_long_name"]),
    ],
)
def test_a_long_line_is_broken_in_its_last_brackets(line: str, lines: list[str]) -> None:
    assert wrapped(line, "  ", 24) == lines
