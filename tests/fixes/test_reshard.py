from __future__ import annotations

import pytest
from snippets import Snippet, reason

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Declined
from fsdplint.rules.root_unsharded_after_eval import reshard_before

BY_HAND = "; call the model's `reshard()` before this by hand"


def resharded(marked: str) -> tuple[Snippet, Fix | Declined]:
    """Fixes the optimizer at the mark "o", which takes its parameters at the mark "p"."""
    at = Snippet(marked)
    source = at["p"]
    assert isinstance(source, ir.Call)
    return at, reshard_before(at.code, source, at["o"] if "o" in at.spans else None)


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        (
            "evaluate(m)\n# Trains.\no = <o:SGD(<p:m.parameters():p>, lr=1):o>\n",
            "evaluate(m)\nm.reshard()\n# Trains.\no = SGD(m.parameters(), lr=1)\n",
        ),
        (
            "def f(self):\n\treturn <o:SGD(<p:self.m.parameters():p>):o>\n",
            "def f(self):\n\tself.m.reshard()\n\treturn SGD(self.m.parameters())\n",
        ),
        (
            "ps = list(<p:m.parameters():p>)\nlog(ps)\no = <o:SGD(ps):o>\n",
            "m.reshard()\nps = list(m.parameters())\nlog(ps)\no = SGD(ps)\n",
        ),
    ],
)
def test_the_root_is_resharded_before(marked: str, expected: str) -> None:
    at, fix = resharded(marked)
    assert at.fixed(fix) == expected
    assert isinstance(fix, Fix) and fix.safety is Safety.UNSAFE


@pytest.mark.parametrize(
    ("marked", "why"),
    [
        (
            "o = <o:SGD(<p:make().parameters():p>):o>\n",
            f"`make().parameters()` does not name the model{BY_HAND}",
        ),
        (
            "def f(m):\n    return <p:m.parameters():p>\no = <o:SGD(f(x)):o>\n",
            f"`m.parameters()` is not in the function that builds the optimizer{BY_HAND}",
        ),
        (
            "<p:m.parameters():p>\n",
            f"`m.parameters()` is not in the function that builds the optimizer{BY_HAND}",
        ),
        (
            "if x: o = <o:SGD(<p:m.parameters():p>):o>\n",
            "`o = SGD(m.parameters())` shares its line with other code; put it on its own line",
        ),
    ],
)
def test_declines(marked: str, why: str) -> None:
    _, fix = resharded(marked)
    assert reason(fix) == why
