from __future__ import annotations

import pytest
from snippets import Snippet, reason

from fsdplint.engine import ir
from fsdplint.finding import Fix
from fsdplint.fixes.code import Declined
from fsdplint.rules.root_not_sharded import shard_root


def sharded(marked: str, path: str) -> tuple[Snippet, Fix | Declined]:
    at = Snippet(marked)
    part = at["part"]
    assert isinstance(part, ir.Call)
    return at, shard_root(at.code, part, path)


@pytest.mark.parametrize(
    ("marked", "path", "expected"),
    [
        (
            "for b in model.blocks:\n    <part:fully_shard(b):part>\n",
            ".blocks[]",
            "for b in model.blocks:\n    fully_shard(b)\nfully_shard(model)\n",
        ),
        (
            "for b in model.blocks:\r\n\t<part:f.fully_shard(b, *a, mesh=m, **k):part>  # c\r\n",
            ".blocks[]",
            "for b in model.blocks:\r\n\tf.fully_shard(b, *a, mesh=m, **k)  # c\r\n"
            "f.fully_shard(model, *a, mesh=m, **k)\r\n",
        ),
        (
            "for i, b in enumerate(reversed(m.blocks)):\n"
            "    last = i == 3\n"
            "    <part:fully_shard(b, reshard_after_forward=not last, mesh=m):part>\n",
            ".blocks[0]",
            "for i, b in enumerate(reversed(m.blocks)):\n"
            "    last = i == 3\n"
            "    fully_shard(b, reshard_after_forward=not last, mesh=m)\n"
            "fully_shard(m, mesh=m)\n",
        ),
        (
            "<part:fully_shard(self.net.body):part>\ndone()\n",
            ".body",
            "fully_shard(self.net.body)\nfully_shard(self.net)\ndone()\n",
        ),
        (
            "if x:\n  <part:fully_shard(module=net.body, mesh=m):part>\n",
            ".body",
            "if x:\n  fully_shard(module=net.body, mesh=m)\n  fully_shard(net, mesh=m)\n",
        ),
        (
            "<part:fully_shard([m.norm, m.head]):part>",
            ".head",
            "fully_shard([m.norm, m.head])\nfully_shard(m)",
        ),
        (
            "_ = [<part:fully_shard(b):part> for s in m.stages for b in s.blocks]\n",
            ".stages[].blocks[]",
            "_ = [fully_shard(b) for s in m.stages for b in s.blocks]\nfully_shard(m)\n",
        ),
        (
            "for m in models:\n    for b in m.blocks.values():\n"
            "        if b:\n            <part:fully_shard(b):part>\n",
            ".blocks[]",
            "for m in models:\n    for b in m.blocks.values():\n"
            "        if b:\n            fully_shard(b)\n    fully_shard(m)\n",
        ),
        (
            "for n, b in m.named_modules():\n    if is_block(b):\n"
            "        <part:fully_shard(b):part>\n",
            ".stages[].block",
            "for n, b in m.named_modules():\n    if is_block(b):\n        fully_shard(b)\n"
            "fully_shard(m)\n",
        ),
        (
            'for b in models["g"].blocks:\n    <part:fully_shard(b):part>\n',
            ".blocks[]",
            'for b in models["g"].blocks:\n    fully_shard(b)\nfully_shard(models["g"])\n',
        ),
        (
            "def f(model):\n    layers = model.model.layers\n    for b in layers:\n"
            "        <part:fully_shard(b):part>\n    return model\n",
            ".model.layers[]",
            "def f(model):\n    layers = model.model.layers\n    for b in layers:\n"
            "        fully_shard(b)\n    fully_shard(model)\n    return model\n",
        ),
    ],
)
def test_the_root_follows_its_parts(marked: str, path: str, expected: str) -> None:
    at, fix = sharded(marked, path)
    assert at.fixed(fix) == expected


@pytest.mark.parametrize(
    ("marked", "path", "why"),
    [
        (
            "for b in blocks:\n    <part:fully_shard(b):part>\n",
            ".blocks[]",
            "no variable holds the model at `fully_shard(b)`; shard the model by hand after its "
            "parts",
        ),
        (
            "for m in models:\n    <part:fully_shard(find(m)):part>\n",
            ".blocks[]",
            "no variable holds the model at `fully_shard(find(m))`; shard the model by hand after "
            "its parts",
        ),
        (
            "for b in m.blocks:\n    <part:fully_shard(b, mesh=b.mesh):part>\n",
            ".blocks[]",
            "`mesh=b.mesh` differs from part to part; shard the model by hand after its parts",
        ),
        (
            "def f(m): return <part:fully_shard(m.body):part>\n",
            ".body",
            "no line can follow `return fully_shard(m.body)`; shard the model by hand after its "
            "parts",
        ),
        (
            "<part:fully_shard(m.body):part>; train(m)\n",
            ".body",
            "no line can follow `fully_shard(m.body)`; shard the model by hand after its parts",
        ),
        (
            "while <part:fully_shard(m.body):part>:\n    pass\n",
            ".body",
            "`fully_shard(m.body)` is in the header of a compound statement; shard the model by "
            "hand after its parts",
        ),
        (
            "m.apply(lambda b: <part:fully_shard(m.body):part>)\n",
            ".body",
            "`fully_shard(m.body)` is in a lambda; shard the model by hand after its parts",
        ),
    ],
)
def test_what_cannot_be_followed_is_declined(marked: str, path: str, why: str) -> None:
    _, fix = sharded(marked, path)
    assert reason(fix) == why
