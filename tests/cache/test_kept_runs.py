"""Which runs are kept, and what a run that is told again, or has nothing to do, imports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kept import UNKNOWN, Runs, entries

# What `-m` and `site` bring along is Python's own start.
LIGHT = {
    "__future__",
    "fsdplint",
    "fsdplint.cache",
    "fsdplint.cache.report_entry",
    "fsdplint.cache.folder",
    "fsdplint.cache.replay",
    "fsdplint.files",
    "fsdplint.files.disk",
    "fsdplint.process",
    "fsdplint.start",
    "fsdplint.process.streams",
    "zlib",
}
HEAVY = (
    "difflib",
    "fsdplint.engine.interpreter",
    "fsdplint.engine.facts",
    "fsdplint.fixes",
    "libcst",
    "sarif_om",
    "torch",
)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--fix",),
        ("--diff",),
        ("--add-ignore", "reason"),
        ("--output-file", "report.txt"),
        ("--output-format", "json=report.json", "--output-format", "full"),
        ("--no-cache",),
        ("--no-such-option",),
        ("nowhere.py",),
    ],
    ids=" ".join,
)
def test_runs_that_are_not_kept(project: Path, runs: Runs, arguments: tuple[str, ...]) -> None:
    runs.made(*arguments)
    assert (entries(), runs.known(*arguments)) == ([], UNKNOWN)
    assert project.name == "project"


@pytest.mark.usefixtures("project")
def test_standard_input_is_read_each_time(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("train.py").open() as script:
        monkeypatch.setattr(sys, "stdin", script)
        runs.made("-")
    assert entries() == []


@pytest.mark.usefixtures("project")
def test_a_run_with_a_fault_of_ours_is_not_kept(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise ZeroDivisionError("why")

    monkeypatch.setattr("fsdplint.rules.direct_forward.reports", crash)
    assert (runs.made().code, entries()) == (2, [])


def test_a_run_that_was_refused_something_is_not_kept(
    project: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied")
        return real(path)

    (project / "closed").mkdir()
    monkeypatch.setattr(os, "scandir", refuse)
    assert (runs.made().code, entries()) == (2, [])


def imported(*arguments: str) -> set[str]:
    """The modules that the command with ``arguments`` has imported when it ends."""
    code = (
        "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "
        "from fsdplint import disk; disk._STEP = -(10**18); "  # however new the files are
        "from fsdplint.start import main; main()"
    )
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1)
    bare = [sys.executable, "-c", "import atexit, sys; print(*sys.modules)"]
    own = subprocess.run(bare, capture_output=True, text=True, check=True).stdout.split()
    return set(done.stderr.split("\n")[-2].split()) - set(own)


def test_a_known_run_imports_next_to_nothing(project: Path, runs: Runs) -> None:
    made = runs.made()
    assert made.code == 1
    imported("check")
    assert imported("check") - LIGHT == set()
    assert project.name == "project"


def heavy(modules: set[str]) -> set[str]:
    return {m for m in modules if any(m == name or m.startswith(f"{name}.") for name in HEAVY)}


@pytest.mark.usefixtures("project")
def test_starting_imports_nothing_heavy() -> None:
    assert heavy(imported("--version")) == set()
    assert heavy(imported("rules")) == set()


def test_a_run_without_sharding_imports_nothing_heavy(project: Path) -> None:
    (project / "train.py").write_text("import math\n")
    assert heavy(imported("check", "--no-cache")) == set()
