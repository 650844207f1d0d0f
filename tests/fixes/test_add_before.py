from __future__ import annotations

import pytest
from snippets import Snippet, reason

from fsdplint.finding import Fix
from fsdplint.fixes.code import Declined
from fsdplint.fixes.move import add_before


def moved(marked: str) -> tuple[Snippet, Fix | Declined]:
    at = Snippet(marked)
    return at, add_before(at.code, at["added"], at["first"])


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        (
            "m = Net()\n<first:fully_shard(m):first>\n"
            "# New.\n<added:m.head:added> = Linear(3)\nf(m)\n",
            "m = Net()\n# New.\nm.head = Linear(3)\nfully_shard(m)\nf(m)\n",
        ),
        (
            "def f(m):\r\n\tfor b in m.blocks:\r\n\t\t<first:fully_shard(b):first>\r\n"
            "\tm = fully_shard(m)\r\n\t<added:setattr(m, 'a', Linear(m.dim)):added>",
            "def f(m):\r\n\tsetattr(m, 'a', Linear(m.dim))\r\n\tfor b in m.blocks:\r\n"
            "\t\tfully_shard(b)\r\n\tm = fully_shard(m)\r\n",
        ),
    ],
)
def test_an_addition_moves_above_the_sharding(marked: str, expected: str) -> None:
    at, fix = moved(marked)
    assert at.fixed(fix) == expected


@pytest.mark.parametrize(
    ("marked", "why"),
    [
        (
            "<first:fully_shard(m):first>\nhead = Linear(3)\n<added:m.head:added> = head\n",
            "`head = Linear(3)` sets `head`; move `m.head = head` before the sharding by hand",
        ),
        (
            "m = <first:fully_shard(Net()):first>\n<added:m.head:added> = Linear(3)\n",
            "`m = fully_shard(Net())` sets `m`; move `m.head = Linear(3)` before the "
            "sharding by hand",
        ),
        (
            "<first:fully_shard(m):first>\nif x:\n    <added:m.head:added> = Linear(3)\n",
            "`m.head = Linear(3)` is in another block than `fully_shard(m)`; move it before the "
            "sharding by hand",
        ),
        (
            "<first:fully_shard(m):first>\nt.add_tokens(new)\n<added:m.resize(len(t)):added>\n",
            "`t.add_tokens(new)` sets `t`; move `m.resize(len(t))` before the sharding by hand",
        ),
        (
            "<first:fully_shard(m):first>\ndim += 1\n<added:m.head:added> = Linear(dim)\n",
            "`dim += 1` sets `dim`; move `m.head = Linear(dim)` before the sharding by hand",
        ),
        (
            "<first:fully_shard(m):first>; x = 1\n<added:m.head:added> = Linear(3)\n",
            "`fully_shard(m)` shares its line with other code; put it on its own line",
        ),
    ],
)
def test_what_cannot_move_is_declined(marked: str, why: str) -> None:
    _, fix = moved(marked)
    assert reason(fix) == why
