from __future__ import annotations

import pytest
from snippets import Snippet, reason

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Declined
from fsdplint.rules.gradient_sync_left_off import reduce_last_micro_batch

SET = "set_requires_gradient_sync"


def reduced(marked: str) -> tuple[Snippet, Fix | Declined]:
    """Fixes the call at the mark "n" for the step at the mark "s"."""
    at = Snippet(marked)
    call = at["n"]
    assert isinstance(call, ir.Call)
    return at, reduce_last_micro_batch(at.code, call, at["s"] if "s" in at.spans else None)


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        (
            f"for i, x in y:\n    <n:m.{SET}(False):n>  # off\n    b(x)\n"
            "    if i % 2 == 0:\n        <s:o.step():s>\n",
            f"for i, x in y:\n    m.{SET}(i % 2 == 0)  # off\n    b(x)\n"
            "    if i % 2 == 0:\n        o.step()\n",
        ),
        (  # The condition is computed behind the flag.
            f"for x in y:\n    <n:m.{SET}(False):n>\n    last = b(x)\n"
            "    if last:\n        <s:o.step():s>\n",
            f"for x in y:\n    m.{SET}(True)\n    last = b(x)\n    if last:\n        o.step()\n",
        ),
        (  # It may do more than ask.
            f"for x in y:\n    <n:m.{SET}(False):n>\n    if done():\n        <s:o.step():s>\n",
            f"for x in y:\n    m.{SET}(True)\n    if done():\n        o.step()\n",
        ),
        (
            f"for i in range(n):\n    <n:m.{SET}(requires_gradient_sync=False):n>\n"
            "<s:o.step():s>\n",
            f"for i in range(n):\n    m.{SET}(requires_gradient_sync=i == n - 1)\no.step()\n",
        ),
        (
            f"for i, x in enumerate(xs):\n    <n:m.{SET}(False):n>\n<s:o.step():s>\n",
            f"for i, x in enumerate(xs):\n    m.{SET}(i == len(xs) - 1)\no.step()\n",
        ),
        (  # Where it counts from is not known.
            f"for i, x in enumerate(xs, 1):\n    <n:m.{SET}(False):n>\n<s:o.step():s>\n",
            f"for i, x in enumerate(xs, 1):\n    m.{SET}(True)\no.step()\n",
        ),
        (
            f"for x in y:\n    if not last(x):\n        <n:m.{SET}(False):n>\n    <s:o.step():s>\n",
            f"for x in y:\n    m.{SET}(last(x))\n    o.step()\n",
        ),
        (
            f"for i in y:\n    if i % 2:\n        <n:m.{SET}(False):n>\n    <s:o.step():s>\n",
            f"for i in y:\n    m.{SET}(i % 2 == 0)\n    o.step()\n",
        ),
        (
            f"for i in y:\n    if i % 2:\n        <n:m.{SET}(False):n>\n        b(i)\n"
            "    else:\n        # The last.\n        b(i)\n        <s:o.step():s>\n",
            f"for i in y:\n    if i % 2:\n        m.{SET}(False)\n        b(i)\n"
            f"    else:\n        m.{SET}(True)\n        # The last.\n        b(i)\n"
            "        o.step()\n",
        ),
        (  # In the other arm the flag stays as the first leaves it.
            f"for i in range(n):\n    if i < n - 1:\n        <n:m.{SET}(False):n>\n        b(i)\n"
            "    else:\n        b(i)\n<s:o.step():s>\n",
            f"for i in range(n):\n    if i < n - 1:\n        m.{SET}(True)\n        b(i)\n"
            "    else:\n        b(i)\no.step()\n",
        ),
        (
            f"if hasattr(m, {SET!r}):\n    <n:m.{SET}(False):n>\n<s:o.step():s>\n",
            f"if hasattr(m, {SET!r}):\n    m.{SET}(True)\no.step()\n",
        ),
        (
            f"def f():\n    <n:m.{SET}(False):n>\n\n<s:o.step():s>\n",
            f"def f():\n    m.{SET}(True)\n\no.step()\n",
        ),
        (f"<n:m.{SET}(False):n>\n", f"m.{SET}(True)\n"),
    ],
)
def test_the_flag_is_on_where_the_step_follows(marked: str, expected: str) -> None:
    at, fix = reduced(marked)
    assert at.fixed(fix) == expected
    assert isinstance(fix, Fix) and fix.safety is Safety.UNSAFE


@pytest.mark.parametrize(
    ("marked", "why"),
    [
        (
            f"<n:m.{SET}(flag):n>\n",
            f"`m.{SET}(flag)` takes its value from elsewhere; turn reduction on there by hand",
        ),
        (
            f"for i in y:\n    if a:\n        b(i)\n    elif i:\n        <n:m.{SET}(False):n>\n"
            "    <s:o.step():s>\n",
            "`elif i:` shares its lines with other code; change it by hand",
        ),
    ],
)
def test_declines(marked: str, why: str) -> None:
    _, fix = reduced(marked)
    assert reason(fix) == why
