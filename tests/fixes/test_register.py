from __future__ import annotations

import pytest
from snippets import Snippet, reason

from fsdplint.check import check_text
from fsdplint.engine import ir
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.code import Declined
from fsdplint.rules.custom_method_bypasses_hooks import register_method

BY_HAND = "; call `register_fsdp_forward_method` by hand"

IMPORT = "from torch.distributed.fsdp import fully_shard\n"
BOTH = "from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method\n"


def registered(marked: str) -> tuple[Snippet, Fix | Declined]:
    at = Snippet(marked)
    shard = at["shard"]
    assert isinstance(shard, ir.Call)
    return at, register_method(at.code, shard, "encode", Safety.SAFE)


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        (
            f"{IMPORT}<shard:fully_shard(m):shard>  # c\n",
            f'{BOTH}fully_shard(m)  # c\nregister_fsdp_forward_method(m, "encode")\n',
        ),
        (
            f"{IMPORT}m = <shard:fully_shard(Net()):shard>",
            f'{BOTH}m = fully_shard(Net())\nregister_fsdp_forward_method(m, "encode")',
        ),
        (
            f"{IMPORT}def f(net):\n\treturn <shard:fully_shard(net, mesh=m):shard>\n",
            f"{BOTH}def f(net):\n\tfully_shard(net, mesh=m)\n"
            '\tregister_fsdp_forward_method(net, "encode")\n\treturn net\n',
        ),
        (
            f"{BOTH}for b in self.blocks:\n  <shard:fully_shard(\n    module=b,\n  ):shard>\n",
            f"{BOTH}for b in self.blocks:\n  fully_shard(\n    module=b,\n  )\n"
            '  register_fsdp_forward_method(b, "encode")\n',
        ),
        (
            "from torch.distributed import fsdp\nself.net = <shard:fsdp.fully_shard(net):shard>\n",
            "from torch.distributed import fsdp\nself.net = fsdp.fully_shard(net)\n"
            'fsdp.register_fsdp_forward_method(self.net, "encode")\n',
        ),
        (
            "from torch.distributed._composable.fsdp import fully_shard\n"
            "<shard:fully_shard(m):shard>\n",
            "from torch.distributed._composable.fsdp import fully_shard, "
            "register_fsdp_forward_method\nfully_shard(m)\n"
            'register_fsdp_forward_method(m, "encode")\n',
        ),
    ],
)
def test_the_method_is_registered_where_the_module_is_sharded(marked: str, expected: str) -> None:
    at, fix = registered(marked)
    assert at.fixed(fix) == expected


@pytest.mark.parametrize(
    ("marked", "why"),
    [
        (
            f"{IMPORT}train(<shard:fully_shard(Net()):shard>)\n",
            f"the module has no name below `fully_shard(Net())`{BY_HAND}",
        ),
        (
            f"{IMPORT}def f(m): return <shard:fully_shard(m):shard>\n",
            "`return fully_shard(m)` shares its line with other code; put it on its own line",
        ),
        (
            f"{IMPORT}def f(m):\n    return <shard:fully_shard(m):shard>, 1\n",
            f"`fully_shard(m)` is part of a larger expression{BY_HAND}",
        ),
        (
            f"{IMPORT}x = [<shard:fully_shard(m):shard> for m in ms]\n",
            f"`fully_shard(m)` is part of a larger expression{BY_HAND}",
        ),
        (
            f"{IMPORT}if <shard:fully_shard(m):shard>:\n    pass\n",
            f"`fully_shard(m)` is part of a larger expression{BY_HAND}",
        ),
    ],
)
def test_what_cannot_be_registered_there_is_declined(marked: str, why: str) -> None:
    _, fix = registered(marked)
    assert reason(fix) == why


TWICE = """\
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(8, 8), nn.Linear(8, 8)

    def encode(self, x):
        return self.encoder(x)

    def forward(self, x):
        return self.decoder({forward})


model = Net()
fully_shard(model{reshard})
model.encode(torch.randn(2, 8)).mean().backward()
"""


OTHER = """\
class Other(nn.Module):
    def forward(self, x):
        return x


"""


@pytest.mark.parametrize(
    ("made", "safe"),
    [
        ("model = Net()", True),
        ("model = Net().to(device).train()", True),
        ("model = Net() if flag else Other()", False),
        ("model = Net() if flag else build()", False),
        ("def make():\n    return Net()\nmodel = make()", True),
    ],
)
def test_a_method_is_registered_unread_only_where_the_class_is_sure(made: str, safe: bool) -> None:
    text = TWICE.format(forward="self.encoder(x)", reshard="").replace(
        "model = Net()", OTHER + made
    )
    found = [each for each in check_text(text) if each.code == "FSD306"]
    expected = Safety.SAFE if safe else Safety.UNSAFE
    assert [each.fix.safety for each in found if each.fix] == [expected]


@pytest.mark.parametrize("reshard", [True, 2])
def test_a_method_that_forward_calls_is_not_registered(reshard: object) -> None:
    """Its hooks would reshard the decoder's parameters before they are used."""
    given = f", reshard_after_forward={reshard}"
    (finding,) = check_text(TWICE.format(forward="self.encode(x)", reshard=given))
    assert finding.fix_declined == (
        "`forward` calls `encode`, whose hooks would reshard before `forward` ends; call it "
        "through `forward` by hand"
    )


@pytest.mark.parametrize(
    ("forward", "reshard"),
    [
        ("self.encode(x)", ""),
        ("self.encode(x)", ", reshard_after_forward=False"),
        ("self.encoder(x)", ", reshard_after_forward=True"),
    ],
)
def test_a_method_beside_forward_is_registered(forward: str, reshard: str) -> None:
    (finding,) = check_text(TWICE.format(forward=forward, reshard=reshard))
    assert finding.fix is not None and finding.fix.safety is Safety.SAFE
