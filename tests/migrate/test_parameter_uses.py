"""Uses of parameters that need whole tensors are gathered, and others that fail are kept."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from plans import only_change, plan_of
from ranks import Ranks, report

from fsdplint.migrate.ddp import DDP
from fsdplint.migrate.step import Kept

_PROGRAM = """\
import sys

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return x + self.layer(x).relu()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def penalty(net):
    total = 0.0
    for name, p in net.named_parameters():
        if "weight" in name:
            total = total + p.norm()
    return total


dist.init_process_group("gloo")
torch.manual_seed(0)
net = Net()
EARLY
net = DDP(net)
LATE
optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
for batch in torch.randn(3, 2, 4):
    optimizer.zero_grad()
    loss = net(batch).square().mean()
    LOSS
    loss.backward()
    GRADIENTS
    optimizer.step()
    STEP
END
"""
_PLACES = ("EARLY", "LATE", "LOSS", "GRADIENTS", "STEP", "END")
planned = partial(plan_of, DDP)


def _program(**lines: str) -> str:
    text = _PROGRAM
    for place in _PLACES:
        text = text.replace(place, lines.get(place, "pass"))
    return text


_KEPT = {
    ("GRADIENTS", "[dist.all_reduce(p.grad) for p in net.parameters()]"): "collectives of",
    ("LATE", "[dist.broadcast(p.data, 0) for p in net.parameters()]"): "collectives of",
    ("STEP", "net.module.head.weight.data[0] = 0"): "a part of a DTensor",
    ("STEP", "net.module.head.weight[0].zero_()"): "a part of a DTensor",
    ("GRADIENTS", "[p.grad.add_(torch.randn(p.shape)) for p in net.parameters()]"): "an operation",
    ("LATE", "nn.init.xavier_uniform_(net.module.head.weight)"): "each rank would fill",
    ("STEP", "net.module.head.reset_parameters()"): "each rank would fill",
    ("STEP", "vector = nn.utils.parameters_to_vector(net.parameters())"): "PyTorch does not",
    (
        "LATE",
        "[p.register_post_accumulate_grad_hook(print) for p in net.parameters()]",
    ): "FSDP2",
    ("GRADIENTS", "[p.grad.norm().clamp_(max=1) for p in net.parameters()]"): "a value that is",
}


@pytest.mark.parametrize(("place", "line"), _KEPT)
def test_what_does_not_work_on_dtensors_is_kept(tmp_path: Path, place: str, line: str) -> None:
    plan = planned(tmp_path, _program(**{place: line}))
    (kept,) = [e.found for e in plan.of(Kept) if isinstance(e.found, Kept)]
    assert kept.reason.startswith(_KEPT[place, line])


_RIGHT = (
    ("STEP", "optimizer = torch.optim.SGD(net.parameters(), lr=0.1) if dist.get_rank() else None"),
    ("STEP", "[p.data.clamp_(-1, 1) for p in net.parameters()]"),
    ("GRADIENTS", "[p.grad.mul_(0.5) for p in net.parameters()]"),
    ("GRADIENTS", "nn.utils.clip_grad_value_(net.parameters(), 0.1)"),
    ("GRADIENTS", "[p.grad.sub_(p.grad.mean(1, keepdim=True)) for p in net.parameters()]"),
    ("STEP", "[p.data.mul_((p.abs() > 0.1).float()) for p in net.parameters()]"),
    ("LATE", "print(sum(p.numel() for p in net.parameters()))"),
)


@pytest.mark.parametrize(("place", "line"), _RIGHT)
def test_what_works_on_dtensors_stays(tmp_path: Path, place: str, line: str) -> None:
    assert line in only_change(planned(tmp_path, _program(**{place: line})))


_GATHERED = {
    ("END", "print(net.module.head.weight.detach().cpu().numpy())"): (
        "print(net.head.weight.full_tensor().detach().cpu().numpy())"
    ),
    ("GRADIENTS", 'print([f"{p.grad.norm():.2f}" for p in net.parameters()])'): (
        'print([f"{p.grad.full_tensor().norm():.2f}" for p in net.parameters()])'
    ),
    ("LOSS", "loss = loss + penalty(net)"): (
        "(value.full_tensor() if isinstance(value := p, DTensor) else value).norm()"
    ),
}


@pytest.mark.parametrize(("place", "line"), _GATHERED)
def test_whole_parameters_are_gathered(tmp_path: Path, place: str, line: str) -> None:
    assert _GATHERED[place, line] in only_change(planned(tmp_path, _program(**{place: line})))


def test_a_penalty_and_arrays_are_as_before(tmp_path: Path, ranks: Ranks) -> None:
    text = _program(
        LOSS="loss = loss + penalty(net)",
        END="np.savez(sys.argv[1], *[p.detach().numpy() for p in net.parameters()])",
    )
    after = only_change(planned(tmp_path, text))
    files = [tmp_path / name for name in ("before.npz", "after.npz")]
    for each, file in zip((text, after), files, strict=True):
        assert not report(ranks.run(each, arguments=[f"{file}"], process_group=False))
    old, new = map(np.load, files)
    assert old.files == new.files
    for name in old.files:
        torch.testing.assert_close(new[name], old[name], rtol=1e-5, atol=1e-6)
