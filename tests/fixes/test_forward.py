from __future__ import annotations

import pytest
from snippets import Snippet, reason

from fsdplint.check import check_text
from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Declined
from fsdplint.rules.direct_forward import call_module


def fixed(marked: str) -> tuple[Snippet, Fix | Declined]:
    at = Snippet(marked)
    node = at["f"]
    assert isinstance(node, ir.Attribute)
    return at, call_module(at.code, node, Safety.SAFE)


@pytest.mark.parametrize(
    ("marked", "result"),
    [
        ("<f:model.forward:f>(x)\n", "model(x)\n"),
        (
            "y = <f:self.model.forward:f>(\n    x,\n)  # c\r\n",
            "y = self.model(\n    x,\n)  # c\r\n",
        ),
        ("checkpoint(<f:block.forward:f>, x)\n", "checkpoint(block, x)\n"),
        ("<f:blocks[i].forward:f>(x)\n", "blocks[i](x)\n"),
        ("<f:get(m).forward:f>(x)\n", "get(m)(x)\n"),
        ("<f:(a or b).forward:f>(x)\n", "(a or b)(x)\n"),
        ("y = (<f:model\n     .forward:f>(x))\n", "y = (model(x))\n"),
        ("y = <f:model \\\n     .forward:f>(x)\n", "y = model(x)\n"),
        ("y = (<f:model  # c\n     .forward:f>(x))\n", "y = (model  # c\n     (x))\n"),
        ("<f:a.forward:f>(b.forward(x))\n", "a(b.forward(x))\n"),
        ("f = <f:model.forward:f>; g\n", "f = model; g\n"),
        ("f = lambda x: <f:model.forward:f>(x)\n", "f = lambda x: model(x)\n"),
    ],
)
def test_forward_is_dropped(marked: str, result: str) -> None:
    at, fix = fixed(marked)
    assert at.fixed(fix) == result
    assert isinstance(fix, Fix) and fix.safety is Safety.SAFE


def test_the_title_names_the_module() -> None:
    fix = fixed("<f:self.model.forward:f>(x)\n")[1]
    assert isinstance(fix, Fix) and fix.title == "call `self.model` instead of its `forward`"


def test_super_has_no_module_to_call() -> None:
    marked = "class A(B):\n    def forward(self, x):\n        return <f:super().forward:f>(x)\n"
    assert (
        reason(fixed(marked)[1])
        == "`super()` is not a module that can be called; change the call by hand"
    )


@pytest.mark.parametrize("marked", ["<f:m.forward:f> = g\n", "del <f:m.forward:f>\n"])
def test_an_assigned_forward_is_declined(marked: str) -> None:
    assert (
        reason(fixed(marked)[1]) == "`m.forward` is assigned, not called; call the module by hand"
    )


_NET = """\
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        return self.layer(x)

"""
_STEP = """

def step(runner, x):
    return runner.forward(x)


net = Net()
fully_shard(net)
step(net, torch.ones(2))
"""
_PLAIN = "\n\nclass Plain:\n    def forward(self, x):\n        return x\n"
_CALL = "\n    def __call__(self, x):\n        return self.forward(x)\n"


@pytest.mark.parametrize(
    ("program", "safety"),
    [
        (_NET + _STEP, Safety.SAFE),
        (_NET + _STEP + "step(nn.Linear(2, 2), torch.ones(2))\n", Safety.SAFE),
        (_NET + _STEP + "step(unknown(), torch.ones(2))\n", Safety.UNSAFE),
        (_NET + _PLAIN + _STEP + "step(Plain(), torch.ones(2))\n", Safety.UNSAFE),
        (_NET + _CALL + _STEP, Safety.UNSAFE),
        (_NET + _STEP + "launch(step)\n", Safety.UNSAFE),
        (_NET + _STEP + "net.layer.register_forward_hook(log)\n", Safety.UNSAFE),
        (
            _NET + _PLAIN + "net = fully_shard(Net()) if x else Plain()\nnet.forward(x)\n",
            Safety.UNSAFE,
        ),
        (_NET + "net = Net()\nfully_shard(net)\nnet.forward(torch.ones(2))\n", Safety.SAFE),
        (
            _NET + "class Holder:\n    def __init__(self, net):\n        self.net = net\n"
            "    def run(self, x):\n        return self.net.forward(x)\n"
            "net = Net()\nfully_shard(net)\nHolder(net).run(torch.ones(2))\n",
            Safety.SAFE,
        ),
        (
            _NET + _PLAIN + "class Holder:\n    def __init__(self, net):\n        self.net = net\n"
            "    def run(self, x):\n        return self.net.forward(x)\n"
            "net = Net()\nfully_shard(net)\nHolder(net).run(torch.ones(2))\n"
            "Holder(Plain()).run(torch.ones(2))\n",
            Safety.UNSAFE,
        ),
    ],
)
def test_safe_only_where_a_module_is_called_whatever_happens(program: str, safety: Safety) -> None:
    found = [each for each in check_text(program) if each.rule == "direct-forward"]
    assert [each.fix.safety for each in found if each.fix] == [safety]
