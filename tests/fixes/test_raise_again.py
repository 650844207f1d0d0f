from __future__ import annotations

import pytest
from snippets import Snippet, reason

from fsdplint.engine import ir
from fsdplint.rules.error_caught_on_one_rank import raise_again

HEAD = "for x in xs:\n    try:\n        f(x)\n    except E as e:\n        "


def handler(at: Snippet) -> ir.Handler:
    return next(n for n in ir.walk(at.code.module) if isinstance(n, ir.Handler))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("continue  # next", "raise  # next"),
        ("print(e)  # log", "print(e)  # log\n        raise"),
        (
            "if a:\n            b()\n        c()",
            "if a:\n            b()\n        c()\n        raise",
        ),
    ],
)
def test_handler_ends_in_raise(body: str, expected: str) -> None:
    at = Snippet(f"{HEAD}{body}\n")
    assert at.fixed(raise_again(at.code, handler(at))) == f"{HEAD}{expected}\n"


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (
            "if a:\n            b()",
            "the handler ends in its own branch; re-raise the error there by hand",
        ),
        ("a(); b()", "the handler's statements share a line"),
    ],
)
def test_declined(body: str, why: str) -> None:
    at = Snippet(f"{HEAD}{body}\n")
    assert reason(raise_again(at.code, handler(at))) == why
