from __future__ import annotations

import pytest
from snippets import Snippet, reason

from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Declined
from fsdplint.rules.all_reduced_loss_before_backward import backward_first


def moved(marked: str) -> tuple[Snippet, Fix | Declined]:
    """Moves the backward at "b" above the reduction at "r" and the division at "d", if any."""
    at = Snippet(marked)
    scalings = [at["r"], *([at["d"]] if "d" in at.spans else [])]
    return at, backward_first(at.code, at["b"], scalings)


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        (
            "<r:reduce(a.l):r>  # sum\na.l = <d:a.l / n:d>\n"
            "# Go.\n<b:a.l.backward():b>  # x\nlog()\n",
            "# Go.\na.l.backward()  # x\nreduce(a.l)  # sum\na.l = a.l / n\nlog()\n",
        ),
        (
            "if n > 1:\n    <r:reduce(l):r>\n    <d:l.div_(n):d>\n<b:(l / 4).backward():b>",
            "(l / 4).backward()\nif n > 1:\n    reduce(l)\n    l.div_(n)\n",
        ),
        ("<r:reduce(l, AVG):r>\n<b:l.backward():b>\n", "l.backward()\nreduce(l, AVG)\n"),
    ],
)
def test_the_backward_goes_first(marked: str, expected: str) -> None:
    at, fix = moved(marked)
    assert at.fixed(fix) == expected
    assert isinstance(fix, Fix) and fix.safety is Safety.UNSAFE


@pytest.mark.parametrize(
    ("marked", "part"),
    [
        (
            "<r:reduce(l):r>\nlog(l)\n<b:l.backward():b>\n",
            "other code is between the reduction and the backward",
        ),
        (
            "<r:reduce(l):r>\nm = <d:l / n:d>\n<b:m.backward():b>\n",
            "does not name the reduced loss",
        ),
        ("<r:reduce(l):r>\nm = <d:l / n:d>\n<b:(m + l).backward():b>\n", "may do more than scale"),
        ("<r:reduce(l):r>\ng = <b:l.backward():b>\n", "is part of a larger statement"),
        (
            "if n:\n    <r:reduce(l):r>\n    log()\n<b:l.backward():b>\n",
            "other code is between the reduction and the backward",
        ),
        ("<r:reduce(l):r>; <b:l.backward():b>\n", "shares its line"),
    ],
)
def test_a_backward_that_cannot_move(marked: str, part: str) -> None:
    assert part in reason(moved(marked)[1])
