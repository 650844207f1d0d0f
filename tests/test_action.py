"""The GitHub action runs no code of the workspace that it checks. It runs for real in `.ci`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

ACTION = (Path(__file__).parents[1] / "action.yml").read_text("utf-8")
# What `python` and `python -m` would import before anything of their own.
NAMES = (
    *("click", "fsdplint/__init__", "fsdplint/__main__", "json", "pip/__init__", "pip/__main__"),
    *("sitecustomize", "tempfile", "types", "usercustomize", "venv"),
)


def test_python_is_isolated_wherever_it_runs() -> None:
    runs = re.findall(r'"\$(?:PYTHON|bin/python)"(.*)', ACTION)
    assert len(runs) == 3
    assert [options.split()[0] for options in runs] == ["-I", "-I", "-I"]


def test_a_hostile_workspace_has_nothing_run_by_the_install(tmp_path: Path) -> None:
    workspace, temporary = tmp_path / "workspace", tmp_path / "temporary"
    for name in NAMES:
        file = workspace / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r} + chr(10))\n")
    temporary.mkdir()
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": ".",
        "PIP_NO_INDEX": "1",
        "PYTHON": sys.executable,
        "RUNNER_TEMP": str(temporary),
        "GITHUB_ACTION_PATH": str(_wheel(tmp_path)),
        "GITHUB_OUTPUT": str(tmp_path / "output"),
    }
    script = ACTION.partition("id: install")[2].partition("run: |\n")[2].partition("\n\n")[0]
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    subprocess.run(command, cwd=workspace, env=environment, check=True)
    assert not (tmp_path / "ran").exists(), (tmp_path / "ran").read_text()
    (python,) = (tmp_path / "output").read_text().splitlines()
    imported = [python.removeprefix("python="), "-I", "-c", "import fsdplint"]
    subprocess.run(imported, cwd=workspace, check=True)


def _wheel(folder: Path) -> Path:
    """A package of our name that is installed without an index."""
    wheel = folder / "fsdplint-1-py3-none-any.whl"
    info = "fsdplint-1.dist-info"
    files = {
        "fsdplint.py": "",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: fsdplint\nVersion: 1\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in files)
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(name, text)
    return wheel
