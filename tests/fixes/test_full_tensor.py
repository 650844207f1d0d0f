from __future__ import annotations

import pytest
from snippets import Snippet, reason

from fsdplint.finding import Fix, Safety
from fsdplint.rules.sharded_reduction_read_locally import combine


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        ("<n:x.norm().item():n>", "x.norm().full_tensor().item()"),
        ("<n:(a / 2).item():n>", "(a / 2).full_tensor().item()"),
        ("(\n    <n:x.sum()\n    .item():n>\n)", "(\n    x.sum()\n    .full_tensor().item()\n)"),
        ("<n:float(x.norm()):n>", "float(x.norm().full_tensor())"),
        ("<n:math.sqrt(a * 2):n>", "math.sqrt((a * 2).full_tensor())"),
        ("if <n:x.any():n>:\n    pass", "if x.any().full_tensor():\n    pass"),
        ("'%d' % <n:n:n>", "'%d' % n.full_tensor()"),
        ("f'{<n:x:n>}'", "f'{x.full_tensor()}'"),
    ],
)
def test_the_number_is_combined_before_it_is_read(marked: str, expected: str) -> None:
    at = Snippet(f"{marked}\n")
    fix = combine(at.code, at["n"])
    assert at.fixed(fix) == f"{expected}\n"
    assert isinstance(fix, Fix) and fix.safety is Safety.UNSAFE


def test_declines_several_numbers_at_once() -> None:
    at = Snippet("<n:any(flags):n>\n")
    assert "reads several values" in reason(combine(at.code, at["n"]))
