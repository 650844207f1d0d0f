"""What the GitHub action runs: the check, and from it the action's outputs.

It ends with 0 once the outputs are written, since a later step uploads the log before the job
fails.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

FAILED = 2


def main() -> None:
    """Check what the environment asks for, with annotations and then frames in the step's log."""
    # Each use of the action in a job has its own.
    directory = Path(tempfile.mkdtemp(prefix="fsdplint-", dir=os.environ["RUNNER_TEMP"]))
    exit_code = _check(directory)
    _print_inert(directory / "full")
    sarif, report = directory / "fsdplint.sarif", directory / "json"
    count = len(json.loads(report.read_text("utf-8"))["findings"]) if report.exists() else ""
    outputs = {
        "exit-code": exit_code,
        "findings": count,
        "sarif-file": sarif if sarif.exists() else "",
    }
    with Path(os.environ["GITHUB_OUTPUT"]).open("a", encoding="utf-8") as file:
        file.writelines(f"{name}={value}\n" for name, value in outputs.items())


def _check(directory: Path) -> int:
    """Have the reports written, GitHub's annotations to the log; the exit code."""
    try:
        options, paths = (
            shlex.split(os.environ[name]) for name in ("FSDPLINT_ARGS", "FSDPLINT_PATHS")
        )
    except ValueError as error:
        print(f"::error title=fsdplint::invalid input of the action: {error}", flush=True)
        return FAILED
    formats = [f"{name}={directory / name}" for name in ("full", "json")]
    formats += ["github", f"sarif={directory / 'fsdplint.sarif'}"]
    command = [sys.executable, "-I", "-X", "utf8", "-m", "fsdplint", "check"]
    command += [f"--output-format={format_}" for format_ in formats]
    return subprocess.run([*command, *options, "--", *paths], check=False).returncode


def _print_inert(report: Path) -> None:
    """Print a report in which the runner takes nothing for a command, whatever code it shows."""
    if report.exists():
        token = secrets.token_hex(16)
        print(f"::stop-commands::{token}\n{report.read_text('utf-8')}::{token}::", flush=True)


if __name__ == "__main__":
    main()
