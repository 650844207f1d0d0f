from __future__ import annotations

import pytest
from snippets import Snippet, reason

from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Declined
from fsdplint.rules.step_skipped_on_one_rank import agree_first

HEAD = "import torch\nimport torch.distributed as dist\n"


def agreed(marked: str, go: bool = False) -> tuple[Snippet, Fix | Declined]:
    """Has the ranks agree on the test at "t" of an ``if``; "b" is what depends on it, if known."""
    at = Snippet(HEAD + marked)
    branch = at.code.statement(at["t"])
    assert isinstance(branch, ir.If)
    return at, agree_first(at.code, branch, at["b"] if "b" in at.spans else None, go=go)


@pytest.mark.parametrize(
    ("marked", "go", "expected"),
    [
        (
            "for x in xs:\n    l = f(x)\n    # NaN\n    if <t:torch.isnan(l):t>:  # bad\n"
            "        continue\n    <b:l.backward():b>\n",
            False,
            "for x in xs:\n    l = f(x)\n    # NaN\n"
            "    skip = torch.tensor(int(torch.isnan(l)), device=l.device)\n"
            "    dist.all_reduce(skip, op=dist.ReduceOp.MAX)\n    if skip:  # bad\n"
            "        continue\n    l.backward()\n",
        ),
        (
            "proceed = 1\nl = f()\nif <t:step > proceed and l.item() < 9:t>:\n"
            "    <b:s.scale(l / 4).backward():b>\n",
            True,
            "proceed = 1\nl = f()\n"
            "proceed_ = torch.tensor(int(bool(step > proceed and l.item() < 9)), device=l.device)\n"
            "dist.all_reduce(proceed_, op=dist.ReduceOp.MIN)\nif proceed_:\n"
            "    s.scale(l / 4).backward()\n",
        ),
        (
            "def g(self, l):\n    if <t:self.bad(l):t>: return\n    <b:l.mean().backward():b>\n",
            False,
            "def g(self, l):\n    skip = torch.tensor(int(self.bad(l)), device=l.device)\n"
            "    dist.all_reduce(skip, op=dist.ReduceOp.MAX)\n    if skip: return\n"
            "    l.mean().backward()\n",
        ),
        (
            "self.l = f()\nif <t:not self.l < 9:t>:\n    stop()\n"
            "<b:torch.autograd.backward(torch.sum(self.l)):b>\n",
            False,
            "self.l = f()\nskip = torch.tensor(int(not self.l < 9), device=self.l.device)\n"
            "dist.all_reduce(skip, op=dist.ReduceOp.MAX)\nif skip:\n    stop()\n"
            "torch.autograd.backward(torch.sum(self.l))\n",
        ),
    ],
)
def test_the_ranks_agree_first(marked: str, go: bool, expected: str) -> None:
    at, fix = agreed(marked, go)
    assert at.fixed(fix) == HEAD + expected
    assert isinstance(fix, Fix) and fix.safety is Safety.UNSAFE


@pytest.mark.parametrize(
    ("marked", "part"),
    [
        ("l = f()\nif a:\n    b()\nelif <t:l > 1:t>:\n    c()\n<b:l.backward():b>\n", "several"),
        ("l = f()\nif <t:(v := l.item()) > 1:t>:\n    c()\n<b:l.backward():b>\n", "assigns"),
        ("if <t:v > 1:t>:\n    c()\nl = f()\n<b:l.backward():b>\n", "the loss has no name here"),
        ("v = l.item()\nif <t:v > 1:t>:\n    c()\n", "the loss has no name here"),
    ],
)
def test_a_test_that_the_ranks_cannot_be_asked_for(marked: str, part: str) -> None:
    assert part in reason(agreed(marked)[1])
