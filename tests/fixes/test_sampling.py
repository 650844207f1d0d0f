"""`epoch-not-set`: the call of `set_epoch` is asked for, or unsafe, where it may not be there."""

from __future__ import annotations

import textwrap

import pytest

from fsdplint.check import check_text
from fsdplint.finding import Finding, Fix, Safety
from fsdplint.fixes.edits import apply

_HEAD = """\
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, TensorDataset

rows = TensorDataset(torch.arange(32.0).reshape(16, 2))
model = fully_shard(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
_LOOP = """\
for epoch in range(3):
    for (batch,) in loader:
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
_TRAIN = "def train(data):\n" + "".join(
    f"    {line}\n" for line in _LOOP.replace("loader", "data").splitlines()
)
_ASKED = "isinstance(loader.sampler, DistributedSampler)"


def found(program: str) -> tuple[str, Finding]:
    text = _HEAD + program
    findings = [each for each in check_text(text) if each.rule == "epoch-not-set"]
    assert len(findings) == 1
    return text, findings[0]


def added(program: str) -> tuple[list[str], Safety]:
    """The lines that the fix adds, and whether it is safe."""
    text, finding = found(program)
    assert isinstance(finding.fix, Fix), finding.fix_declined
    lines = apply(text, finding.fix.edits).splitlines()
    before = text.splitlines()
    new = [line.strip() for line in lines if line not in before]
    return new, finding.fix.safety


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (
            "sampler = DistributedSampler(rows)\nloader = DataLoader(rows, sampler=sampler)\n",
            ["sampler.set_epoch(epoch)"],
        ),
        (
            "sampler = None\nif distributed:\n    sampler = DistributedSampler(rows)\n"
            "loader = DataLoader(rows, sampler=sampler)\n",
            ["if sampler is not None:", "sampler.set_epoch(epoch)"],
        ),
        (
            "if distributed:\n    sampler = DistributedSampler(rows)\n"
            "else:\n    sampler = RandomSampler(rows)\n"
            "loader = DataLoader(rows, sampler=sampler)\n",
            ["if isinstance(sampler, DistributedSampler):", "sampler.set_epoch(epoch)"],
        ),
        (
            # A loader without a sampler has one all the same, and never None.
            "sampler = DistributedSampler(rows) if distributed else None\n"
            "loader = DataLoader(rows, sampler=sampler)\n",
            [f"if {_ASKED}:", "loader.sampler.set_epoch(epoch)"],
        ),
        (
            "sampler = DistributedSampler(rows) if distributed else RandomSampler(rows)\n"
            "loader = DataLoader(rows, sampler=sampler)\n",
            [f"if {_ASKED}:", "loader.sampler.set_epoch(epoch)"],
        ),
    ],
)
def test_a_sampler_that_is_not_always_distributed_is_asked(made: str, expected: list[str]) -> None:
    assert added(made + _LOOP) == (expected, Safety.SAFE)


@pytest.mark.parametrize(
    ("other", "asked"),
    [
        ("train([(torch.ones(2, 2),)])\n", 'getattr(data, "sampler", None)'),
        ("train(DataLoader(rows, shuffle=True))\n", "data.sampler"),
    ],
)
def test_a_function_that_gets_other_loaders_too(other: str, asked: str) -> None:
    made = "train(DataLoader(rows, sampler=DistributedSampler(rows)))\n"
    expected = [f"if isinstance({asked}, DistributedSampler):", "data.sampler.set_epoch(epoch)"]
    assert added(_TRAIN + made + other) == (expected, Safety.SAFE)


_STEP = _LOOP.partition("\n")[2]
_MADE = "sampler = DistributedSampler(rows)\nloader = DataLoader(rows, sampler=sampler)\n"
_NEXT = "sampler.set_epoch(sampler.epoch + 1)"
_CYCLE = """\
def cycle(loader):
    while True:
        yield from loader


for (batch,) in cycle(loader):
    model(batch).square().mean().backward()
    optimizer.step()
"""
_HELD = "loader.sampler.set_epoch(loader.sampler.epoch + 1)"


@pytest.mark.parametrize(
    ("loops", "expected"),
    [
        ("while not done():\n" + _STEP, [_NEXT]),
        ("for _ in range(3):\n" + _STEP, [_NEXT]),
        ("for epoch in epochs():\n" + _STEP, [_NEXT]),
        ("for stage in range(2):\n" + textwrap.indent(_LOOP, "    "), [_NEXT]),
        (_CYCLE, [_HELD]),
    ],
)
def test_a_sampler_counts_the_epochs_that_no_loop_numbers(loops: str, expected: list[str]) -> None:
    assert added(_MADE + loops) == (expected, Safety.SAFE)


def test_a_sampler_that_may_not_be_there_makes_the_fix_unsafe() -> None:
    made = (
        "if distributed:\n    sampler = DistributedSampler(rows)\n"
        "    loader = DataLoader(rows, sampler=sampler)\n"
        "else:\n    loader = DataLoader(rows, shuffle=True)\n"
    )
    assert added(made + _LOOP)[1] is Safety.UNSAFE


@pytest.mark.parametrize("collected", ["list(data)", "[batch for batch in data]", "tuple(data)"])
def test_batches_that_are_drawn_once(collected: str) -> None:
    made = f"data = DataLoader(rows, sampler=DistributedSampler(rows))\nloader = {collected}\n"
    _, finding = found(made + _LOOP)
    assert finding.fix is None
    assert finding.fix_declined == (
        "`loader` holds batches drawn once, before the epochs; iterate over the loader in each "
        "epoch by hand"
    )
