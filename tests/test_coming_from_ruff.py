"""The page for Ruff's users names Ruff's options and ours as both tools have them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from fsdplint.cli.check import check

PAGE = (Path(__file__).parent.parent / "docs" / "ruff.md").read_text("utf-8")
OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")
OURS = {name for option in check.params for name in option.opts if name.startswith("-")}


def rows() -> Iterator[tuple[set[str], str]]:
    """Ruff's options and our cell of each row."""
    table = PAGE.partition("## ")[0]
    for theirs, ours in re.findall(r"^\| (.*?) ?\| (.*?) ?\|", table, re.MULTILINE)[1:]:
        yield set(OPTION.findall(theirs)), ours


def test_every_option_of_ours_is_in_the_table_or_not_ruffs() -> None:
    theirs = set().union(*(options for options, _ in rows()))
    named = {o for options, ours in rows() for o in (options if ours == "the same" else ())}
    named |= {option for _, ours in rows() for option in OPTION.findall(ours)}
    assert named <= OURS
    assert OURS & theirs <= named


def test_ruff_has_its_options() -> None:
    command = [sys.executable, "-m", "ruff", "check", "--help"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    shared = set().union(*(options for options, ours in rows() if ours == "the same"))
    assert len(shared) > 20
    assert {option for option in shared if option not in OPTION.findall(text)} == set()
