"""Shell completion through click's protocol, and in a shell."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_cli import here, run

from fsdplint.report import REPORTS
from fsdplint.rules import RULES

__all__ = ["here"]  # a fixture

IN_BASH = """\
source <(_FSDPLINT_COMPLETE=bash_source fsdplint)
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_fsdplint_completion fsdplint 2>/dev/null
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(*words: str) -> list[str]:
    """What click offers to bash for the last of ``words``, each with its type."""
    place = str(len(words))
    environment = {"COMP_WORDS": " ".join(("fsdplint", *words)), "COMP_CWORD": place}
    ran = run(_FSDPLINT_COMPLETE="bash_complete", **environment)
    assert (ran.code, ran.err) == (0, "")
    return ran.out.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["ch"], ["plain,check"]),
        (["check", "--select", "direct"], ["plain,direct-forward"]),
        (["check", "--select=FSD302"], ["plain,FSD302"]),
        (["check", "--ignore", "fsd302"], ["plain,FSD302"]),
        (["check", "--ignore", "FSD1,FSD302"], ["plain,FSD1,FSD302"]),
        (["check", "--extend-select", "a,b,direct"], ["plain,a,b,direct-forward"]),
        (["check", "--select", "nope"], []),
        (["check", "--output-format", "js"], ["plain,json", "plain,json-lines"]),
        (["check", "--color", "n"], ["plain,never"]),
        (["check", "--fail-on", "w"], ["plain,warning"]),
        (["check", "train"], ["file,train"]),
        (["check", "--config", "my"], ["file,my"]),
        (["explain", "direct"], ["plain,direct-forward"]),
        (["explain", "--error", "lo"], ["file,lo"]),
        (["explain", "--error", "log.txt", "tr"], ["file,tr"]),
        (["nope", "x"], []),
    ],
)
def test_words_are_completed(words: list[str], offered: list[str]) -> None:
    assert completed(*words) == offered


@pytest.mark.parametrize("command", [["check", "--select", "FSD"], ["explain", "FSD"]])
def test_every_code_is_offered(command: list[str]) -> None:
    assert completed(*command) == [f"plain,{rule.code}" for rule in RULES]


def test_shells_that_show_help_show_what_a_rule_finds() -> None:
    words = {"COMP_WORDS": "fsdplint explain", "COMP_CWORD": "FSD302"}
    rule = next(rule for rule in RULES if rule.code == "FSD302")
    ran = run(_FSDPLINT_COMPLETE="fish_complete", **words)
    assert ran.out == f"plain,FSD302\t{rule.name}: {rule.summary}\n"
    words = {"COMP_WORDS": "fsdplint explain direct", "COMP_CWORD": "2"}
    ran = run(_FSDPLINT_COMPLETE="zsh_complete", **words)
    assert ran.out == f"plain\ndirect-forward\n{rule.summary}\n"


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["check", "--output-format", ""], list(REPORTS)),
        (["check", "--select", "FSD302,direct"], ["FSD302,direct-forward"]),
        (["check", "--show"], ["--show-files", "--show-settings"]),
    ],
)
def test_bash_completes(here: Path, words: list[str], offered: list[str]) -> None:
    (here / "fsdplint").write_text(f'#!/bin/sh\nexec {sys.executable} -m fsdplint "$@"\n')
    (here / "fsdplint").chmod(0o755)
    environment = {**os.environ, "PATH": f"{here}{os.pathsep}{os.environ['PATH']}"}
    command = ["bash", "-c", IN_BASH, "-", "fsdplint", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == offered
