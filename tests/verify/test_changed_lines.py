"""A proof tells which of the changed lines it has not run."""

from __future__ import annotations

from pathlib import Path

import pytest
from waiting import LONG

from fsdplint.verify.changed_lines import added
from fsdplint.verify.equivalence import compare
from fsdplint.verify.request import Request
from fsdplint.verify.warm_launcher import Warm

_HELPER = """\
def scale():
    return 0.1
"""
_SCALED = """\
def scale():
    rate = 0.1  # the same
    return rate


def unused():
    return 0
"""
_SCRIPT = """\
import torch
import torch.distributed as dist
from helper import scale
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = torch.nn.Linear(4, 4)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=scale())
for step in range(2):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
_AFTER = (
    _SCRIPT.replace("range(2)", "range(\n    2\n)")
    + """\
# The end.
if step > 5:
    print("more")
    print("still more")
"""
)


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (None, "changed lines: 6 of 9 ran; not run: helper.py:7; train.py:18-19"),
        (
            1,
            "changed lines: 5 of 9 ran; not run: helper.py:7; train.py:17-19 "
            "(`--steps all` runs the script to its end)",
        ),
    ],
)
def test_lines_that_do_not_run_are_named(
    steps: int | None, said: str, warm: Warm, tmp_path: Path
) -> None:
    (tmp_path / "helper.py").write_text(_HELPER)
    (tmp_path / "train.py").write_text(_SCRIPT)
    request = Request("train.py", (), 2, steps, "cpu", LONG)
    overlay = {"helper.py": _SCALED.encode(), "train.py": _AFTER.encode()}
    found = compare(request, tmp_path, overlay, warm, lambda _: None)
    assert (found.refusal, found.figures[-1]) == ("", said)


def test_only_lines_that_python_executes_count() -> None:
    before = '"""Text."""\nx = 1\n'
    after = f"""\
{before.replace("Text", "Other text")}
# A comment.

def f(
    y,
):
    global x
    x = y
"""
    assert added(before.encode(), after.encode()) == {1, 6, 10}
