"""Runs the action's steps on projects, and sees that they end, tell and upload as promised.

usage: steps.py WORK
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from cases import CASES, Files, write
from runner import Job, Runner

ROOT = Path(__file__).parents[2]
UPLOAD = "github/codeql-action/upload-sarif"
BROKEN = {f"a b/{name}": content for name, content in CASES["across files"][0].items()}
COMMANDS = b"""\
import torch
from torch.distributed.fsdp import fully_shard

model = torch.nn.Linear(8, 8)
fully_shard(model)
model.forward("##[stop-commands]x")  # ##[error]not a finding
"""
UNREADABLE = b"from torch.distributed.fsdp import fully_shard\nx = '\xe9'\n"
# What Python would import from the workspace before anything of its own.
SHADOWS = {
    f"{name}.py": b"open('ran', 'w')\n"
    for name in ("fsdplint/__init__", "fsdplint/__main__", "pip", "sitecustomize", "types", "venv")
}
# What a shell would run, were it to see it.
HOSTILE = "$(touch ran) `touch ran` ; touch ran"


class Machine:
    """Where jobs run, one after the other."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.temporary = work / "runner"
        self.temporary.mkdir()
        self.installed: dict[str, str] = {}

    def job(self, name: str, files: Files, **inputs: str) -> Job:
        workspace = self.work / "workspaces" / name
        write(workspace, files)
        (workspace / ".git").mkdir(exist_ok=True)
        runner = Runner(ROOT, workspace, self.temporary, sys.executable, self.installed)
        job = runner.run(**inputs)
        assert not list(workspace.rglob("ran")), "an input or a file of the workspace was run"
        print(f"{name}: exit {job.code}, {job.outputs}", flush=True)
        return job


def expect(job: Job, code: int, findings: int | None, uploaded: int | None) -> None:
    """How the job ended, how many findings it told, and how many it uploaded; None for none."""
    assert job.code == code, job.log
    assert job.outputs["exit-code"] == str(code), job.log
    assert job.outputs["findings"] == ("" if findings is None else str(findings))
    assert (UPLOAD in job.used) == (uploaded is not None)
    if uploaded is not None:
        assert job.uploaded is not None
        (run,) = json.loads(job.uploaded)["runs"]
        assert len(run["results"]) == uploaded


def commands(log: str) -> list[str]:
    """The names of the commands that the runner obeys: a line's start, or "##[" anywhere."""
    names, stopped = [], ""
    for line in log.splitlines():
        if stopped:
            stopped = "" if line == f"::{stopped}::" else stopped
        elif line.startswith("::stop-commands::"):
            stopped = line.removeprefix("::stop-commands::")
        elif line.startswith("::"):
            names.append(line[2:].partition(" ")[0])
        elif "##[" in line:
            names.append(line)
    assert not stopped
    return names


def run(machine: Machine) -> None:
    """Run every case.

    Raises:
        AssertionError: the action does not keep its promises.
    """
    # The first job is the one that installs.
    clean = machine.job("clean", {"clean.py": b"x = 1\n", **SHADOWS}, paths="clean.py")
    expect(clean, 0, 0, uploaded=0)
    assert clean.used[UPLOAD]["category"] == "fsdplint"
    assert "No findings in 1 file (1 without sharding)." in clean.log

    inputs = {"paths": "'a b'/train.py\n", "category": "of b"}
    broken = machine.job("broken", BROKEN, **inputs)
    expect(broken, 1, 2, uploaded=2)
    assert broken.used[UPLOAD]["category"] == "of b"
    assert broken.used[UPLOAD]["sarif_file"] == broken.outputs["sarif-file"]
    assert commands(broken.log) == ["error", "error"]
    assert "Found 2 findings in 1 file" in broken.log

    inside = machine.job("inside", BROKEN, **{"working-directory": "a b"}, args="--select FSD302")
    expect(inside, 1, 1, uploaded=1)
    assert '"uri":"a%20b/train.py"' in str(inside.uploaded)

    shown = machine.job(
        "shown", {"a.py": COMMANDS}, args="--exit-zero", **{"upload-sarif": "false"}
    )
    expect(shown, 0, 1, uploaded=None)
    assert commands(shown.log) == ["error"]
    assert "#[stop-commands]x" in shown.log

    option = machine.job("option", BROKEN, args="--select FSD999")
    expect(option, 2, None, uploaded=None)
    assert "FSD999" in option.log

    unreadable = machine.job("unreadable", {**BROKEN, "latin.py": UNREADABLE})
    expect(unreadable, 2, 2, uploaded=2)
    assert "latin.py" in unreadable.log

    # Words, which are no files.
    expect(machine.job("hostile", BROKEN, paths=HOSTILE, args=HOSTILE), 2, 0, uploaded=0)
    expect(machine.job("unquoted", BROKEN, paths="'a b"), 2, None, uploaded=None)


if __name__ == "__main__":
    run(Machine(Path(sys.argv[1])))
