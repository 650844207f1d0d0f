"""`check --watch`, as a process that runs until it is interrupted."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest
from test_cli import CLEAN, FIXED, IDLE, LINE, Ran, concise, here
from waiting import LONG

from fsdplint.cli.watch import _matters, _roots

__all__ = ["here"]  # a fixture

LINE_OF_A = f"a.py:1:8: {LINE}\n"
FOUND = f"{LINE_OF_A}Found 1 finding in 1 file (1 fixable with --fix); 1 file without sharding.\n"
WAITING = b"fsdplint: watching for changes; press Ctrl-C to stop\n"


@contextmanager
def watching(*options: str) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """What a watch prints; it is interrupted at the end, and has to end well."""
    # A job that a script put into the background starts with the signal ignored.
    heed = functools.partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    command = [sys.executable, "-m", "fsdplint", "check", "--output-format=concise", *options]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, preexec_fn=heed)
    assert process.stdout is not None and process.stderr is not None
    try:
        yield process.stdout, process.stderr
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=LONG)
        assert (process.returncode, out, err) == (0, b"", b"\n")
    finally:
        process.kill()
        process.wait()


def lines(stream: IO[bytes], text: str) -> bytes:
    """As many lines of ``stream`` as ``text`` has."""
    return b"".join(stream.readline() for _ in text.splitlines())


def put(file: Path, text: str) -> None:
    """Write a file in one step, which is one change."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)


def test_a_change_is_checked_and_nothing_is_cleared_on_a_pipe(here: Path) -> None:
    (here / "a.py").write_text(IDLE)
    with watching("--watch") as (out, err):
        assert (lines(out, FOUND), err.readline()) == (FOUND.encode(), WAITING)
        (here / "notes.txt").write_text("no source file")
        put(here / "a.py", FIXED)
        assert (lines(out, CLEAN), err.readline()) == (CLEAN.encode(), WAITING)
        put(here / "fsdplint.toml", "selct = []\n")
        mistake = f"fsdplint: {here}/fsdplint.toml: selct: unknown key; did you mean 'select'?\n"
        assert (err.readline(), err.readline()) == (mistake.encode(), WAITING)
        (here / "fsdplint.toml").unlink()
        assert (lines(out, CLEAN), err.readline()) == (CLEAN.encode(), WAITING)


def test_quiet_says_nothing_of_watching(here: Path) -> None:
    (here / "a.py").write_text(IDLE)
    with watching("-w", "-q") as (out, _):
        assert out.readline() == LINE_OF_A.encode()
        put(here / "b.py", IDLE)
        assert [out.readline(), out.readline()] == [
            LINE_OF_A.encode(),
            LINE_OF_A.replace("a.py", "b.py").encode(),
        ]


def test_a_mistake_on_the_command_line_ends_the_watch(here: Path) -> None:
    (here / "a.py").write_text(FIXED)
    message = "fsdplint: unknown rule 'nope'; `fsdplint rules` lists them\n"
    assert concise("--watch", "--select=nope") == Ran(2, "", message)


def test_what_is_missing_says_how_to_install_it(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    (here / "a.py").write_text(IDLE)
    message = "--watch requires watchfiles; install it with `pip install 'fsdplint[watch]'`"
    assert concise("--watch") == Ran(2, "", f"fsdplint: {message}\n")


@pytest.mark.parametrize(
    ("arguments", "other"),
    [
        (["-"], "--verify or standard input"),
        (["a.py", "--fix", "--verify"], "--verify or standard input"),
        (["--show-files"], "--show-files or --show-settings"),
        (["--show-settings"], "--show-files or --show-settings"),
    ],
)
def test_what_cannot_be_watched(here: Path, arguments: list[str], other: str) -> None:
    (here / "a.py").write_text(FIXED)
    message = f"fsdplint: --watch cannot be combined with {other}\n"
    assert concise("--watch", *arguments) == Ran(2, "", message)


def test_the_folders_to_watch_hold_the_project_and_other_files(here: Path) -> None:
    for name in ("project/src/pkg", "elsewhere", "alone"):
        (here / name).mkdir(parents=True)
    (here / "project/pyproject.toml").write_text("")
    assert list(_roots(["project/src/pkg", "project/src"], [])) == [f"{here}/project"]
    assert list(_roots(["project/src/a.py"], ["elsewhere/x.toml"])) == [
        f"{here}/elsewhere",
        f"{here}/project",
    ]
    assert list(_roots(["alone/a.py", "gone/a.py"], [])) == [f"{here}/alone"]


@pytest.mark.parametrize(
    ("path", "matters"),
    [
        ("src/a.py", True),
        ("a.ipynb", True),
        ("pyproject.toml", True),
        (".gitignore", True),
        ("mine.toml", True),
        ("other.toml", False),
        ("a.pyc", False),
        (".venv/lib/a.py", False),
        ("__pycache__/a.py", False),
    ],
)
def test_only_what_a_run_reads_matters(here: Path, path: str, matters: bool) -> None:
    assert _matters(os.fspath(here / path), ["mine.toml"]) is matters
