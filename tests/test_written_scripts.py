"""Scripts that the cells of a notebook write, each a program of its own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest

from fsdplint.check import check, inspect
from fsdplint.finding import Finding
from fsdplint.fixes.edits import apply
from fsdplint.report.inspection import inspection_as_text
from fsdplint.report.style import plain
from fsdplint.settings.config import defaults
from fsdplint.settings.rule_selection import EVERYTHING

TRAIN = """\
%%writefile train.py
import torch
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2), 4)
model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({nn.TransformerEncoderLayer}))
optimizer = torch.optim.AdamW(model.parameters())
for batch in range(3):
    model(torch.ones(1)).sum().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def notebook(*cells: str) -> str:
    code = [
        {"cell_type": "code", "metadata": {}, "outputs": [], "source": cell.splitlines(True)}
        for cell in cells
    ]
    return json.dumps({"cells": code, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def found(*cells: str) -> list[Finding]:
    Path("nb.ipynb").write_text(notebook(*cells))
    outcome = check(["nb.ipynb"], defaults(EVERYTHING))
    assert not outcome.failures
    assert {account.path for account in outcome.accounts} == {str(Path("nb.ipynb").absolute())}
    return list(outcome.findings)


def rules(*cells: str) -> list[str]:
    return sorted(finding.rule for finding in found(*cells))


def cells_after(finding: Finding) -> list[str]:
    """Return the sources of the cells once a finding is fixed."""
    outcome = check(["nb.ipynb"], defaults(EVERYTHING))
    (source,) = outcome.sources.values()
    assert finding.fix is not None
    data = source.edited(apply(source.text, finding.fix.edits)).encode()
    return ["".join(cell["source"]) for cell in json.loads(data)["cells"]]


def test_a_written_script_is_checked_where_its_cell_is() -> None:
    findings = found("!nvidia-smi", TRAIN, "!torchrun train.py")
    assert [f.rule for f in findings] == ["clip-grad-util-on-fsdp1"]
    (finding,) = findings
    assert finding.paths == {str(Path("nb.ipynb").absolute())}
    (source,) = check(["nb.ipynb"], defaults()).sources.values()
    assert source.cell(source.position(finding.span.start)[0]) == (2, 12)


def test_a_fix_keeps_the_magic_and_the_other_cells() -> None:
    (finding,) = found("x = 1", TRAIN, "%%writefile other.py\nprint(1)", "y = 2")
    fixed = cells_after(finding)
    assert fixed[0::2] == ["x = 1", "%%writefile other.py\nprint(1)"]
    assert fixed[3] == "y = 2"
    assert fixed[1] == TRAIN.replace(
        "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)", "model.clip_grad_norm_(1.0)"
    )


def test_what_a_fix_adds_at_an_end_stays_in_the_cell() -> None:
    init = "import torch.distributed as dist\ndist.init_process_group('nccl')\n"
    fixed = TRAIN.replace(
        "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)", "model.clip_grad_norm_(1.0)"
    )
    script = fixed.replace("import torch\n", f"import torch\n{init}", 1).rstrip("\n")
    findings = found("x = 1", script, "%%writefile other.py\nprint(1)")
    (finding,) = (f for f in findings if f.rule == "process-group-not-destroyed")
    assert cells_after(finding) == [
        "x = 1",
        script + "\ndist.destroy_process_group()",
        "%%writefile other.py\nprint(1)",
    ]


def test_what_is_added_below_a_cell_does_not_go_above_the_magic_of_the_next() -> None:
    from fsdplint.files.file import from_bytes

    source = from_bytes(notebook("x = 1", "%%writefile a.py\ny = 2", "z = 3").encode(), "nb.ipynb")
    edited = source.edited(source.text.replace("x = 1\n", "x = 1\nx = 2\n"))
    assert ["".join(c["source"]) for c in json.loads(edited.encode())["cells"]] == [
        "x = 1\nx = 2",
        "%%writefile a.py\ny = 2",
        "z = 3",
    ]


def test_the_code_of_each_script_runs_by_itself() -> None:
    shards = TRAIN.replace("train.py", "a.py").split("for batch")[0]
    clips = (
        "%%writefile b.py\nimport torch\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    )
    assert rules(shards, clips) == []
    assert rules(shards, clips.split("\n", 1)[1]) == []
    assert rules(shards.split("\n", 1)[1], clips) == []


def test_a_script_finds_another_that_the_notebook_writes() -> None:
    wrap = """\
        %%writefile lib/wrap.py
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        def wrap(model):
            return FSDP(model, auto_wrap_policy=print)
        """
    train = """\
        %%writefile lib/train.py
        import torch
        from wrap import wrap

        model = wrap(torch.nn.Linear(2, 2))
        model(torch.ones(2)).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        """
    (finding,) = found("x = 1", dedent(wrap), dedent(train))
    assert finding.rule == "clip-grad-util-on-fsdp1"
    assert "in wrap.py on line 5 of cell 2" in finding.message
    assert rules(dedent(train)) == []


def test_messages_name_a_line_by_its_cell() -> None:
    (script,) = found("x = 1", TRAIN)
    assert "on line 8 of cell 2" in script.message
    shards, clips = TRAIN.split("\n", 1)[1].split("for batch")
    (notebook,) = found("x = 1", shards, "for batch" + clips)
    assert "on line 7 of cell 2" in notebook.message


def test_a_failure_names_a_line_by_its_cell() -> None:
    Path("nb.ipynb").write_text(notebook("x = 1", "y = 2\ndef"))
    settings = replace(defaults(), select=frozenset())
    (account,) = check(["nb.ipynb"], settings).accounts
    assert account.reason == "line 2 of cell 2 is not valid Python: invalid syntax"


@pytest.mark.parametrize(
    "magic",
    [
        "%%writefile train.txt",
        "%%writefile -a train.py",
        "%%writefile {folder}/train.py",
        "%%bash",
        "%%script train.py",
    ],
)
def test_other_cells_stay_unread(magic: str) -> None:
    assert rules(TRAIN.replace("%%writefile train.py", magic)) == []


@pytest.mark.parametrize(
    "magic",
    [
        "%%file train.py",
        "%%writefile ./src/train.py",
        "%%writefile /content/train.py",
        "%%writefile 'train.py'",
        "\n%%writefile  train.py ",
    ],
)
def test_spellings_of_the_magic(magic: str) -> None:
    assert rules(TRAIN.replace("%%writefile train.py", magic)) == ["clip-grad-util-on-fsdp1"]


def test_a_script_that_is_written_piece_by_piece_is_not_judged() -> None:
    assert rules(TRAIN, "%%writefile -a train.py\nprint(1)\n") == []


def test_of_a_script_that_is_written_twice_the_last_counts() -> None:
    assert rules(TRAIN, "%%writefile train.py\nprint(1)\n") == []
    assert rules("%%writefile train.py\nprint(1)\n", TRAIN) == ["clip-grad-util-on-fsdp1"]


def test_a_comment_in_a_script_suppresses() -> None:
    comment = "1.0)  # fsdplint: ignore[clip-grad-util-on-fsdp1] -- a test"
    assert rules(TRAIN.replace("1.0)", comment)) == []


def test_a_script_that_is_not_python_is_said() -> None:
    assert rules(TRAIN + "def\n") == ["invalid-syntax"]


def test_inspect_names_the_script() -> None:
    Path("nb.ipynb").write_text(notebook("x = 1", TRAIN))
    drawn = inspection_as_text(*inspect("nb.ipynb"), plain)
    assert drawn.startswith("nb.ipynb/train.py: top level\n  models\n    train.py:cell 2:")
    assert "nothing starts" not in drawn
