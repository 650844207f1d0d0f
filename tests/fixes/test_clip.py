from __future__ import annotations

import pytest
from snippets import Snippet, reason

from fsdplint.check import check_text
from fsdplint.engine import ir
from fsdplint.finding import Finding, Fix, Safety
from fsdplint.fixes.code import Declined
from fsdplint.fixes.edits import apply
from fsdplint.rules.clip_grad_util_on_fsdp1 import clip_by_root

IMPORT = "from torch.nn.utils import clip_grad_norm_\n"


def clipped(marked: str, wrapped: bool = True) -> tuple[Snippet, Fix | Declined]:
    at = Snippet(marked)
    node = at["n"]
    assert isinstance(node, ir.Call)
    return at, clip_by_root(at.code, node, lambda _: wrapped)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("clip(model.parameters(), 1.0)", "model.clip_grad_norm_(1.0)"),
        ("clip(self.net.parameters(), c.max, 2)", "self.net.clip_grad_norm_(c.max, 2)"),
        ("clip(m.module.parameters(), 1.0)", "m.clip_grad_norm_(1.0)"),
        ("clip(max_norm=1.0, parameters=m.parameters())", "m.clip_grad_norm_(max_norm=1.0)"),
        ("clip(parameters=m.parameters(), max_norm=1.0)", "m.clip_grad_norm_(max_norm=1.0)"),
        ("clip(m.parameters(), foreach=True, max_norm=1)", "m.clip_grad_norm_(max_norm=1)"),
        ("clip(m.parameters(), 1.0, 2.0, False, True)", "m.clip_grad_norm_(1.0, 2.0)"),
        ("clip(\n    m.parameters(),\n    1.0,\n)", "m.clip_grad_norm_(\n    1.0,\n)"),
    ],
)
def test_the_call_becomes_the_method(call: str, expected: str) -> None:
    at, fix = clipped(f"norm = <n:{call}:n>.item()\n")
    assert at.fixed(fix) == f"norm = {expected}.item()\n"


def test_an_import_without_use_goes() -> None:
    at, fix = clipped(f"{IMPORT}import os\n<n:clip_grad_norm_(m.parameters(), 1):n>\n")
    assert at.fixed(fix) == "import os\nm.clip_grad_norm_(1)\n"
    at, fix = clipped(f"{IMPORT}<n:clip_grad_norm_(m.parameters(), 1):n>\nf(clip_grad_norm_)\n")
    assert at.fixed(fix) == f"{IMPORT}m.clip_grad_norm_(1)\nf(clip_grad_norm_)\n"


def test_a_model_that_is_not_always_wrapped_is_asked() -> None:
    at, fix = clipped(f"{IMPORT}\nif x:\n\tn = <n:clip_grad_norm_(m.parameters(), 1):n>\n", False)
    assert at.fixed(fix) == (
        f"{IMPORT}from torch.distributed.fsdp import FullyShardedDataParallel\n\n"
        "if x:\n\tif isinstance(m, FullyShardedDataParallel):\n"
        "\t\tn = m.clip_grad_norm_(1)\n\telse:\n\t\tn = clip_grad_norm_(m.parameters(), 1)\n"
    )


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        ("<n:clip(m.parameters()):n>", "does not spell out `max_norm`"),
        ("<n:clip(m.parameters(), *a):n>", "not all written out"),
        ("<n:clip(m.parameters(), 1, error_if_nonfinite=True):n>", "no `error_if_nonfinite`"),
        ("<n:clip(m.parameters(), 1, norm=2):n>", "does not match torch's signature"),
        ("<n:clip(ps, 1):n>", "`ps` does not name the model"),
        ("ps = list(m.parameters())\n<n:clip(ps, 1):n>", "`ps` does not name the model"),
        ("<n:clip(list(m.parameters()), 1):n>", "does not name the model"),
        ("<n:clip([p for p in m.parameters() if p.ndim > 1], 1):n>", "does not name the model"),
        ("<n:clip(m.parameters(recurse=False), 1):n>", "may leave parameters out"),
        ("<n:clip(unwrap(m).parameters(), 1):n>", "may be a module inside the wrapper"),
        ("x = m.module\n<n:clip(x.parameters(), 1):n>", "`x` is the module inside the wrapper"),
        ("<n:clip(  # all\n    m.parameters(), 1):n>", "a comment is inside the call"),
    ],
)
def test_declines(marked: str, expected: str) -> None:
    _, fix = clipped(f"{marked}\n")
    assert expected in reason(fix)


def test_declines_to_ask_inside_other_code() -> None:
    _, fix = clipped("if <n:clip(m.parameters(), 1):n> > 2:\n    pass\n", wrapped=False)
    assert "is in a larger statement" in reason(fix)


_HEAD = """\
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

model = FSDP(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
"""
_TRAIN = "loss = model(torch.ones(2, 2)).sum()\nloss.backward()\n"
_UTIL = "torch.nn.utils.clip_grad_norm_"
_ASKING = "if isinstance({0}, FSDP):", "{0}.clip_grad_norm_(1.0)"


def _finding(program: str) -> tuple[str, Finding]:
    text = _HEAD + program
    found = [each for each in check_text(text) if each.rule == "clip-grad-util-on-fsdp1"]
    assert len(found) == 1
    return text, found[0]


@pytest.mark.parametrize(
    ("program", "lines"),
    [
        (f"{_TRAIN}{_UTIL}(model.parameters(), 1.0)\n", ["model.clip_grad_norm_(1.0)"]),
        (
            f"def clip(m):\n    {_UTIL}(m.parameters(), 1.0)\n{_TRAIN}clip(model)\n",
            ["m.clip_grad_norm_(1.0)"],
        ),
        (
            f"def clip(m):\n    {_UTIL}(m.parameters(), 1.0)\n{_TRAIN}clip(model)\n"
            "clip(nn.Linear(2, 2))\n",
            [each.format("m") for each in _ASKING],
        ),
        (
            f"def clip(m):\n    {_UTIL}(m.parameters(), 1.0)\n{_TRAIN}clip(model)\nclip(build())\n",
            [each.format("m") for each in _ASKING],
        ),
        (
            f"model = model if x else nn.Linear(2, 2)\n{_TRAIN}{_UTIL}(model.parameters(), 1.0)\n",
            [each.format("model") for each in _ASKING],
        ),
    ],
)
def test_a_model_that_may_be_another_is_asked(program: str, lines: list[str]) -> None:
    text, finding = _finding(program)
    assert finding.fix is not None
    assert finding.fix.safety is Safety.SAFE
    fixed = apply(text, finding.fix.edits)
    for line in lines:
        assert line in map(str.strip, fixed.splitlines())
    assert ("isinstance" in fixed) is (len(lines) > 1)


def test_an_object_that_hands_out_the_models_parameters() -> None:
    engine = (
        "class Engine:\n    def __init__(self, model):\n        self.model = model\n"
        "    def parameters(self):\n        return self.model.parameters()\n"
    )
    use = f"engine = Engine(model)\n{_TRAIN}{_UTIL}(engine.parameters(), 1.0)\n"
    _, finding = _finding(engine + use)
    assert finding.fix is None
    assert (
        finding.fix_declined
        == "`engine` is not itself the FSDP1 model; call the root's `clip_grad_norm_` by hand"
    )


_LOOP = f"""\
import torch.distributed as dist
from own import SplitSampler
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

rank = dist.get_rank()
rows = torch.load("rows.pt")
{{}}
for step, batch in enumerate(DataLoader(rows)):
    model(batch).sum().backward()
    if (step + 1) % 4 == 0 or step + 1 == len(loader):
        {_UTIL}(model.parameters(), 1.0)
"""


@pytest.mark.parametrize(
    ("loader", "alike"),
    [
        ("loader = DataLoader(rows, sampler=DistributedSampler(rows, rank=rank))", True),
        ("loader = DataLoader(rows, 8, False, DistributedSampler(rows, 2, rank))", True),
        (
            "sampler = DistributedSampler(rows, rank=rank) if dist.is_initialized() else None\n"
            "loader = DataLoader(rows, sampler=sampler)",
            True,
        ),
        ("loader = DataLoader(rows[rank::2])", False),
        ("loader = DataLoader(rows, sampler=SplitSampler(rows, rank=rank))", False),
        ("loader = DataLoader(rows, rank + 1, sampler=DistributedSampler(rows, rank=rank))", False),
        (
            "part = TensorDataset(rows[rank::2])\n"
            "loader = DataLoader(part, sampler=DistributedSampler(part, rank=rank))",
            False,
        ),
        (
            "plain = DistributedSampler(rows, rank=rank)\n"
            "sampler = plain if x else SplitSampler(rows, rank=rank)\n"
            "loader = DataLoader(rows, sampler=sampler)",
            False,
        ),
    ],
)
def test_the_ranks_have_equally_many_batches_of_a_distributed_sampler(
    loader: str, alike: bool
) -> None:
    """The root's method waits for all ranks, so that all have to come to it."""
    _, finding = _finding(_LOOP.format(loader))
    if alike:
        assert finding.fix is not None
        assert finding.fix.safety is Safety.SAFE
    else:
        assert finding.fix is None
        assert "only some ranks reach this line" in (finding.fix_declined or "")
