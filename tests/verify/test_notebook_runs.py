"""Notebooks: each cell runs as Python, places name cells, and IPython lines are reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from verifier import Verifier

from fsdplint.verify.remedies import with_remedies
from fsdplint.verify.report import render
from fsdplint.verify.verdict import Verification

SETUP = """
%pip install torch
!nvidia-smi
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
"""
NET = """%%writefile parts/net.py
import torch
class Net(torch.nn.Linear):
    pass
"""
HEAD = "%%writefile parts/sizes.py\nwidth = 4\n"
KERNEL = """
import asyncio, dataclasses
await asyncio.sleep(0)
@dataclasses.dataclass
class Options:
    rate: float = 0.1
assert dataclasses.fields(Options)[0].type is float
display(Options())
"""
MORE = "%%writefile -a parts/sizes.py\nwidth += 4\n"
TRAIN = """
%%time
from parts.net import Net
from parts.sizes import width

def train(width):
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank())
    model = Net(width, width).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    fully_shard(model)
    for _ in range(4):
        model(torch.randn(4, width).cuda()).sum().backward()
        optimizer.step()
"""
LAUNCH = """
from accelerate import notebook_launcher
assert width == 8
notebook_launcher(train, (width,), num_processes=2)
"""
SHELL = "%%bash\ntorchrun train.py\nls\n"


def notebook(folder: Path, *cells: str) -> Path:
    """A notebook whose first cell is text and whose others are `cells`."""
    code = [
        {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
        | {"source": cell.strip("\n").splitlines(keepends=True)}
        for cell in cells
    ]
    text = {"cell_type": "markdown", "metadata": {}, "source": ["# Training"]}
    file = folder / "train.ipynb"
    content = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [text, *code]}
    file.write_text(json.dumps(content, indent=1), "utf-8")
    return file


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("notebook")
    notebook(folder, SETUP, NET, HEAD, MORE, TRAIN, LAUNCH, SHELL)
    return folder


@pytest.fixture(scope="module")
def found(verifier: Verifier, folder: Path) -> Verification:
    return with_remedies(verifier(folder / "train.ipynb"), folder)


def test_the_line_of_a_cell_and_the_rule_that_finds_it(found: Verification) -> None:
    (verdict,) = found.violated
    assert verdict.clause == "optimizer"
    assert [str(place) for place in verdict.places] == [
        "train.ipynb:cell 6:9",
        "train.ipynb:cell 6:10",
    ]
    assert found.remedies["optimizer"].rule == "optimizer-before-sharding at train.ipynb:cell 6:9"
    assert "fsdplint check train.ipynb " in found.remedies["optimizer"].command


def test_what_is_not_run_is_told(found: Verification) -> None:
    assert found.notes == (
        "IPython lines skipped: `%pip install torch`, `!nvidia-smi`, `%%time` and 1 more",
    )


def test_reports_show_the_cells_lines(found: Verification, folder: Path) -> None:
    text = render(found, "text", folder, color=False, width=100)
    built = "   9 |     optimizer = torch.optim.AdamW(model.parameters())\n"
    assert built in text
    page = render(found, "html", folder, color=False, width=100)
    assert ">train.ipynb:cell 6:9 in train, " in page
    assert "<i> 9  </i>" in page
    log = json.loads(render(found, "sarif", folder, color=False, width=100))
    (result,) = log["runs"][0]["results"]
    stored = (folder / "train.ipynb").read_text("utf-8").splitlines()
    where = result["locations"][0]["physicalLocation"]
    assert where["artifactLocation"]["uri"] == "train.ipynb"
    assert "AdamW" in stored[where["region"]["startLine"] - 1]


def test_a_crash_names_its_cell(verifier: Verifier, tmp_path: Path) -> None:
    file = notebook(tmp_path, "import inspect\n\ndef f():\n    raise ValueError(3)", "f()")
    found = verifier(file)
    assert found.ranks[0].error.splitlines() == [
        "Traceback (most recent call last):",
        '  File "train.ipynb:cell 3", line 1, in <module>',
        "    f()",
        '  File "train.ipynb:cell 2", line 4, in f',
        "    raise ValueError(3)",
        "ValueError: 3",
    ]


def test_what_a_kernel_gives_a_cell(verifier: Verifier, tmp_path: Path) -> None:
    (tmp_path / "old.py").write_text("A = 1\n")
    more = "%%writefile -a old.py\nB = 2\n"
    file = notebook(tmp_path, KERNEL, more, "from old import A, B\nraise SystemExit(A + B)")
    found = verifier(file)
    assert found.ranks[0].output == "Options(rate=0.1)"
    assert "SystemExit: 3" in found.failure


def test_no_notebook_at_all(verifier: Verifier, tmp_path: Path) -> None:
    file = tmp_path / "train.ipynb"
    file.write_text("[", "utf-8")
    assert "not a Jupyter notebook" in verifier(file).failure
