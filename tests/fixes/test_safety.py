"""Which fixes of whole programs may be applied unread, and what they leave for other files."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from fsdplint.check import check, check_text
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.edits import apply
from fsdplint.settings.config import defaults

CLIPS = """\
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.utils import clip_grad_norm_


def train():
    model = FSDP(nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.randn(2, 8)).mean().backward()
    clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
"""
MAIN = '\n\nif __name__ == "__main__":\n    train()\n'


def only_fix(text: str) -> Fix | str:
    """The fix of the one finding in a program, or why there is none."""
    (finding,) = check_text(textwrap.dedent(text))
    return finding.fix or finding.fix_declined


def is_safe(text: str) -> bool:
    fix = only_fix(text)
    return isinstance(fix, Fix) and fix.safety is Safety.SAFE


@pytest.mark.parametrize(
    ("text", "other", "dropped"),
    [
        (CLIPS + MAIN, "", True),
        (CLIPS + MAIN, "from train import clip_grad_norm_\n", False),
        (CLIPS + MAIN, "from train import *\n", False),
        (CLIPS + MAIN, "import pkg.train as t\nt.clip_grad_norm_\n", False),
        (CLIPS + MAIN, "from . import (\n    train,\n)\n", False),
        (CLIPS + MAIN, "import importlib\nimportlib.import_module('train')\n", False),
        (CLIPS + MAIN, "model.train()\n", True),
        (CLIPS + MAIN, "import sys\nsys.modules['__main__'].clip_grad_norm_\n", False),
        (CLIPS + MAIN, "import __main__\n__main__.clip_grad_norm_\n", False),
        (CLIPS + MAIN, "if __name__ == '__main__':\n    pass\n", True),
        (CLIPS, "", False),
        (f"{CLIPS}\ntrain()\n", "", True),
    ],
)
def test_an_import_goes_only_where_no_other_file_can_use_it(
    text: str, other: str, dropped: bool, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(text)
    (tmp_path / "other.py").write_text(other)
    (finding,) = check([tmp_path], defaults()).findings
    assert finding.fix is not None
    fixed = apply(text, finding.fix.edits)
    assert ("from torch.nn.utils import" not in fixed) is dropped


HEAD = """\
import contextlib
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

flag = len(sys.argv) > 1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(8, 8), nn.Linear(8, 8)
        self.blocks = {blocks}

    def forward(self, x):
        return self.head(self.first(x))


model = Net()
"""
LIST = "nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])"


@pytest.mark.parametrize(
    ("blocks", "program", "safe"),
    [
        # A loop over what is no container shards its parts, or fails.
        (LIST, "fully_shard(model.blocks)\n", True),
        (f"{LIST} if flag else nn.Sequential()", "fully_shard(model.blocks)\n", False),
        (
            LIST,
            "def shard(part):\n    fully_shard(part)\n\n\nshard(model.blocks)\nshard(model.head)\n",
            False,
        ),
        # Where nothing is frozen, the flat parameters are in checkpoints.
        ("None", "model.first.requires_grad_(False)\nmodel = FSDP(model)\n", True),
        (
            "None",
            "if flag:\n    model.first.requires_grad_(False)\nmodel = FSDP(model)\n",
            False,
        ),
        (
            "None",
            "def wrap(model):\n    return FSDP(model)\n\n\n"
            "wrap(Net())\nmodel.first.requires_grad_(False)\nwrap(model)\n",
            False,
        ),
        # The number may be a shape already.
        ("None", "mesh = init_device_mesh('cuda', 8)\nfully_shard(model, mesh=mesh)\n", True),
        (
            "None",
            "n = 8\nmesh = init_device_mesh('cuda', n)\nfully_shard(model, mesh=mesh)\n",
            True,
        ),
        (
            "None",
            "def shard(n):\n    fully_shard(model, mesh=init_device_mesh('cuda', n))\n"
            "\n\nshard(8)\n",
            False,
        ),
        (
            "None",
            "n = 'cuda:0'\nif flag:\n    n = 'cuda'\n"
            "mesh = init_device_mesh('cuda:0', (8,))\nfully_shard(model, mesh=mesh)\n",
            True,
        ),
        (
            "None",
            "def shard(kind):\n    fully_shard(model, mesh=init_device_mesh(kind, (8,)))\n\n\n"
            "shard('cuda:0')\n",
            False,
        ),
        # `no_grad` lets gradients be turned on again.
        (
            "None",
            "fully_shard(model)\nwith torch.inference_mode():\n    model(torch.ones(8))\n"
            "model(torch.ones(8)).sum().backward()\n",
            True,
        ),
        (
            "None",
            "fully_shard(model)\nwith torch.inference_mode():\n    model(torch.ones(8))\n"
            "    with torch.enable_grad():\n        probe()\n"
            "model(torch.ones(8)).sum().backward()\n",
            False,
        ),
        # Another way than the import is left.
        ("None", "from torch.distributed.fsdp import flat_param\nfully_shard(model)\n", True),
        (
            "None",
            "def load():\n    from torch.distributed.fsdp import flat_param\n\n\n"
            "with contextlib.suppress(ImportError):\n    load()\nfully_shard(model)\n",
            False,
        ),
    ],
)
def test_a_fix_is_safe_where_it_is_right_on_every_path(
    blocks: str, program: str, safe: bool
) -> None:
    assert is_safe(HEAD.format(blocks=blocks) + program) is safe


OFFLOADED = """\
{before}
dist.init_process_group("nccl")
fully_shard(model, offload_policy={policy})
model(torch.ones(8)).sum().backward()
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
dist.destroy_process_group()
"""


@pytest.mark.parametrize(
    ("policy", "before", "safe"),
    [
        ("CPUOffloadPolicy()", "", True),
        ("CPUOffloadPolicy() if flag else None", "", False),
        # It is another text than "nccl" then.
        ("CPUOffloadPolicy()", "on_gpu = lambda: dist.get_backend() == 'nccl'", False),
    ],
)
def test_gloo_is_added_where_every_run_needs_it(policy: str, before: str, safe: bool) -> None:
    program = OFFLOADED.format(policy=policy, before=before)
    assert is_safe(HEAD.format(blocks="None") + program) is safe


def test_an_import_whose_error_is_suppressed_is_no_finding() -> None:
    program = (
        "with contextlib.suppress(ImportError):\n"
        "    from torch.distributed.fsdp import flat_param\nfully_shard(model)\n"
    )
    assert check_text(HEAD.format(blocks="None") + program) == []


JOINED = """\
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP

fully_shard(model)
{program}
    replicas(torch.ones(8)).sum().backward()
"""
