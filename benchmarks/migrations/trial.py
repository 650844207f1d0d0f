"""Migrate one program in a scratch folder, and read what `fsdplint migrate` says of it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.migrations.programs import Program

_STAND_INS = Path(__file__).with_name("stand_ins")
_FIGURES = (
    "as it is: ",
    "losses: ",
    "parameters: ",
    "saved: ",
    "initial parameters: ",
    "random numbers: ",
)
_OFFLINE = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "WANDB_MODE": "disabled"}


class TrialError(Exception):
    """A program that cannot be tried; the message says why."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a migration.

    Attributes:
        complete: the plan leaves nothing to do by hand.
        proven: the runs before and after computed and saved the same.
        said: the figures of the proof, or the reasons why there is none.
    """

    complete: bool
    proven: bool
    said: tuple[str, ...]


def export(program: Program, checkout: Path, folder: Path) -> Path:
    """Write the program's directory and its inputs below ``folder``; return the directory.

    Raises:
        TrialError: the checkout lacks the commit or the directory.
    """
    directory = folder / program.directory
    replaced = [f"{program.directory}/{name}" for name in program.files]
    left_out = [*replaced, *_absent(program, checkout)]
    inputs = [f":(exclude,literal)./{path}" for path in left_out]
    archive = subprocess.run(
        ["git", "-C", str(checkout), "archive", program.commit, "--", program.directory, *inputs],
        capture_output=True,
    )
    if archive.returncode:
        raise TrialError(archive.stderr.decode(errors="replace").strip())
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(folder, filter="data")
    for name, content in program.files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    return directory


def _absent(program: Program, checkout: Path) -> list[str]:
    """Return the files that a checkout lists and lacks, as a snapshot does its largest."""
    git = ["git", "-C", str(checkout)]
    listed = subprocess.run(
        [*git, "ls-tree", "-r", "-z", program.commit, "--", program.directory],
        capture_output=True,
        encoding="utf-8",
    ).stdout.split("\0")
    entries = [entry.split("\t") for entry in listed if entry]
    paths = {about.split()[2]: path for about, path in entries if about.split()[1] == "blob"}
    checked = subprocess.run(
        [*git, "cat-file", "--batch-check"],
        input="\n".join(paths),
        capture_output=True,
        encoding="utf-8",
    ).stdout.splitlines()
    return [paths[line.split()[0]] for line in checked if line.endswith(" missing")]


def migrate(program: Program, directory: Path, limit: float) -> tuple[str, Result]:
    """Return what `fsdplint migrate` prints, and what that means."""
    command = [
        *(sys.executable, "-m", "fsdplint", "migrate", program.kind, program.script, "--yes"),
        *("--verify", "--steps", program.steps, "--verify-args", program.arguments),
        *("--timeout", str(limit)),
    ]
    environment = {
        **os.environ,
        **_OFFLINE,
        **program.environment,
        "PATH": _joined(_STAND_INS / "bin", os.environ["PATH"]),
        # The directory as well, as for a package that is installed from it.
        "PYTHONPATH": _joined(_STAND_INS, directory, os.environ.get("PYTHONPATH", "")),
    }
    run = subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, encoding="utf-8"
    )
    printed = run.stdout + run.stderr
    return printed, _read(printed.splitlines(), run.returncode)


def _joined(*paths: Path | str) -> str:
    return os.pathsep.join(filter(None, map(str, paths)))


def _read(lines: list[str], status: int) -> Result:
    complete = any(line.startswith("Complete: ") for line in lines)
    if complete:
        said = [line for line in lines if line.startswith((*_FIGURES, "Nothing was written: "))]
    else:
        marks = ("unchanged: ", "new finding after", "Error: ", "Nothing to migrate")
        said = [line.strip() for line in lines if any(mark in line for mark in marks)]
    return Result(complete, complete and status == 0, tuple(said or lines[-1:]))
