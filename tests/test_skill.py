"""The skill is true: its scripts run, and its commands print what it shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SKILL = Path(__file__).parents[1] / "skills" / "fsdp-training" / "SKILL.md"
TEXT = SKILL.read_text("utf-8")
FENCES = re.findall(r"^```(\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
EXIT = re.compile(r"  # exits with (\d)$")


def commands(text: str) -> Iterator[tuple[str, str]]:
    """Each command of a console with what it is said to print."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, printed = part.partition("\n")
        yield command, printed


def matches(shown: str, printed: str) -> bool:
    """Whether a text is the one that is shown, where an ellipsis stands for anything."""
    pattern = re.escape(shown).replace("…\n", ".*\n").replace("…", ".*")
    return re.fullmatch(pattern, printed, re.DOTALL) is not None


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("a\n", "a\n", True),
        ("a\n", "a\nb\n", False),
        ("a\n…\nd\n", "a\nb\nc\nd\n", True),
        ("[…]\n", "[1, 2]\n", True),
        ("[…]\n", "(1)\n", False),
        ("a\n…\n", "b\nc\n", False),
    ],
)
def test_an_ellipsis_stands_for_anything(shown: str, printed: str, same: bool) -> None:
    assert matches(shown, printed) is same


def test_the_skill_is_short_and_in_order() -> None:
    assert len(TEXT.splitlines()) <= 170
    assert re.findall(r"^## \d\. (.*)$", TEXT, re.MULTILINE) == [
        *("Retrofit", "Check", "Fix", "Verify", "Checkpoint", "Debug a hang")
    ]
    assert {kind for kind, _ in FENCES} == {"python", "console"}


def test_its_commands_print_what_it_shows(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "fsdplint").write_text(f'#!/bin/sh\nexec {sys.executable} -m fsdplint "$@"\n')
    (programs / "fsdplint").chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "NO_COLOR": "1"}
    here = tmp_path / "work"
    here.mkdir()
    ran = []
    for kind, text in FENCES:
        if kind == "python":
            (name,) = re.findall(r"\A# (\w+\.py)\n", text)
            (here / name).write_text(text)
            continue
        for command, shown in commands(text):
            expected = EXIT.search(command)
            done = subprocess.run(
                ["bash", "-c", command], cwd=here, env=environment, capture_output=True, text=True
            )
            assert done.returncode == int(expected[1] if expected else 0), (command, done)
            assert matches(shown, done.stdout), (command, done.stdout)
            ran.append(command)
    assert len(ran) == 7
