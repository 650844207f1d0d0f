"""Which fixes of whole programs may be applied unread, and what they leave for other files."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from fsdplint.check import check, check_text
from fsdplint.config import defaults
from fsdplint.finding import Fix, Safety
from fsdplint.fixes.edits import apply

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
