from __future__ import annotations

import errno
import functools
import io
import json
import os
import pty
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest
from waiting import LONG

import fsdplint
from fsdplint.cli import main as cli
from fsdplint.cli import plan
from fsdplint.process.terminal import _TERMINALS, wants_links
from fsdplint.rules import RULES

# A finding that needs no analysis: a comment that silences nothing, with a safe fix.
IDLE = "x = 1  # fsdplint: ignore[direct-forward]\n"
FIXED = "x = 1\n"
LINE = (
    "FSD002 [*] unused-suppression: unused suppression of `direct-forward`: there is no finding "
    "here, and the comment would hide a later one"
)
CLEAN = "No findings in 1 file (1 without sharding).\n"


class Ran(NamedTuple):
    code: int
    out: str
    err: str


def run(*arguments: str | Path, stdin: str | bytes = "", **environment: str) -> Ran:
    """The command in the working directory, in this process."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    in_, out, err = (io.TextIOWrapper(io.BytesIO(d), "utf-8") for d in (data, b"", b""))
    with (
        mock.patch.multiple(sys, stdin=in_, stdout=out, stderr=err),
        mock.patch.dict(os.environ, environment),
        pytest.raises(SystemExit) as ended,
    ):
        cli.main(list(map(os.fspath, arguments)))
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(os.fsdecode(stream.buffer.getvalue()))  # type: ignore[attr-defined] # a BytesIO
    return Ran(ended.value.code, *texts)  # type: ignore[arg-type] # an int


def spawn(*arguments: str | Path) -> Ran:
    """The command in the working directory, in a process of its own, which it may bring down."""
    command = [sys.executable, "-m", "fsdplint", *map(os.fspath, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return Ran(done.returncode, done.stdout, done.stderr)


def concise(*arguments: str | Path, **more: str) -> Ran:
    return run("check", "--output-format=concise", *arguments, **more)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (
        "CLICOLOR_FORCE",
        "FORCE_COLOR",
        "FSDPLINT_DEBUG",
        "FSDPLINT_OUTPUT_FORMAT",
        "NO_COLOR",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_version_and_help() -> None:
    assert spawn("--version") == Ran(0, f"fsdplint {fsdplint.__version__}\n", "")
    assert run().out == run("--help").out
    assert run("check", "-h").code == 0


def test_clean(here: Path) -> None:
    (here / "a.py").write_text(FIXED)
    assert run("check") == Ran(0, CLEAN, "")


def test_findings(here: Path) -> None:
    (here / "a.py").write_text(IDLE)
    (here / "b.py").write_text(FIXED)
    expected = f"a.py:1:8: {LINE}\nFound 1 finding in 1 file (1 fixable with --fix); "
    expected += "2 files without sharding.\n"
    assert concise() == Ran(1, expected, "")
    assert concise("--exit-zero") == Ran(0, expected, "")
    assert concise("b.py").code == 0
    assert run("check").out.startswith(f"a.py:1:8: {LINE}\n  |\n1 | x = 1  # fsdplint")


def test_a_syntax_error_is_a_finding_and_the_rest_goes_on(here: Path) -> None:
    (here / "a.py").write_text("import fully_shard\ndef f(:\n")
    (here / "b.py").write_text(IDLE)
    ran = concise()
    assert (ran.code, ran.err) == (1, "")
    first, second, _ = ran.out.splitlines()
    assert first == (
        "a.py:2:7: FSD001 invalid-syntax: this file cannot be parsed and is not checked: "
        "invalid syntax"
    )
    assert second == f"b.py:1:8: {LINE}"
    assert concise("a.py", "--select=FSD302").code == 1


def test_what_does_not_parse_is_a_failure_where_its_rule_is_not_run(here: Path) -> None:
    (here / "a.py").write_text("import fully_shard\ndef f(:\n")
    told = "fsdplint: a.py: line 2 is not valid Python: invalid syntax\n"
    unseen = Ran(2, "No findings in 0 files; 1 file could not be checked.\n", told)
    assert concise("a.py", "--ignore=FSD001") == unseen
    (here / "fsdplint.toml").write_text('[per-file-ignores]\n"a.py" = ["FSD001"]\n')
    assert concise("a.py") == unseen
    (here / "b.py").write_text("x = 1\n")
    (here / "fsdplint.toml").write_text('exclude = ["a.py"]\n')
    assert concise().code == 0


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"x = '\xff'\n", "line 1 is not utf-8 (byte 0xff): invalid start byte"),
        (b"x = '\0'\n", "not Python source: it contains a NUL byte"),
        (b"# coding: nonsense\n", "unknown encoding: nonsense"),
    ],
)
@pytest.mark.parametrize("extra", [(), ("--fix",), ("--diff",), ("--select=FSD3",)])
def test_undecodable_files_fail_the_run_and_the_rest_goes_on(
    here: Path, data: bytes, reason: str, extra: Sequence[str]
) -> None:
    (here / "bad.py").write_bytes(data)
    (here / "good.py").write_text(FIXED)
    ran = concise(*extra)
    assert ran.code == 2
    assert ran.err.splitlines()[0] == f"fsdplint: bad.py: {reason}"
    assert "1 file could not be checked" in (ran.err if "--diff" in extra else ran.out)
    assert (here / "bad.py").read_bytes() == data


def test_other_encodings_are_read(here: Path) -> None:
    (here / "a.py").write_bytes(b"# coding: latin-1\n'\xe9'\n")
    (here / "b.py").write_bytes(b"\xef\xbb\xbfx = 1\r\n")
    assert concise() == Ran(0, "No findings in 2 files (2 without sharding).\n", "")


def test_a_missing_path(here: Path) -> None:
    (here / "train.py").write_text(FIXED)
    ran = concise("trian.py", "train.py")
    assert ran.code == 2
    assert ran.err == "fsdplint: trian.py: no such file or folder; did you mean 'train.py'?\n"
    assert ran.out == "No findings in 1 file (1 without sharding); 1 path could not be checked.\n"


def test_broken_links_and_loops(here: Path) -> None:
    (here / "pkg").mkdir()
    (here / "pkg/a.py").write_text(IDLE)
    (here / "pkg/loop").symlink_to(here, target_is_directory=True)
    (here / "again.py").symlink_to(here / "pkg/a.py")
    assert concise().out.splitlines()[:-1] == [f"pkg/a.py:1:8: {LINE}"]
    (here / "gone.py").symlink_to(here / "nothing")
    ran = concise()
    assert ran.code == 2
    assert ran.err == "fsdplint: gone.py: No such file or directory\n"


def test_a_directory_without_python_is_not_clean(here: Path) -> None:
    (here / "empty").mkdir()
    ran = concise("empty")
    assert (ran.code, ran.err) == (2, "fsdplint: empty: contains no Python file to check\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--select=direct-foward"],
            "unknown rule 'direct-foward'; did you mean 'direct-forward'?",
        ),
        (["--ignore=E501"], "unknown rule 'E501'; `fsdplint rules` lists them"),
        (["--select=FSD3,nope"], "unknown rule 'nope'; `fsdplint rules` lists them"),
        (["--unsafe-fixes"], "--unsafe-fixes requires --fix or --diff"),
        (["--add-ignore= "], "--add-ignore requires a reason of one line"),
        (["--add-ignore=a\nb"], "--add-ignore requires a reason of one line"),
        (
            ["--add-ignore=a", "--fix"],
            "--add-ignore cannot be combined with --fix",
        ),
        (["--stdin-filename=a.py"], "--stdin-filename requires the path `-`, standard input"),
        (["-", "a.py"], "the path `-`, standard input, cannot be combined with other paths"),
        (["--isolated", "--config=x.toml"], "--isolated cannot be combined with --config"),
        (["--config=x.toml"], "x.toml: No such file or directory"),
        (
            ["--select=FSD302", "--ignore=direct-forward"],
            "no rule is left: --ignore disables all selected rules",
        ),
        (["--ignore=ALL"], "no rule is left: --ignore disables all selected rules"),
        (
            ["--select=FSD001", "--ignore=FSD0"],
            "no rule is left: --ignore disables all selected rules",
        ),
    ],
)
def test_misuse_is_one_line_and_exit_2(here: Path, arguments: Sequence[str], message: str) -> None:
    (here / "a.py").write_text(FIXED)
    assert run("check", *arguments) == Ran(2, "", f"fsdplint: {message}\n")


def test_unknown_options_and_formats_are_one_line() -> None:
    for arguments in (["check", "--selct=x"], ["check", "--output-format=xml"], ["chek"]):
        ran = run(*arguments)
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)


def test_settings_are_found_and_their_mistakes_reported(here: Path) -> None:
    (here / "src").mkdir()
    (here / "src/a.py").write_text(IDLE)
    (here / "pyproject.toml").write_text("[tool.fsdplint]\nignore = ['FSD002']\n")
    assert concise("src").code == 0
    assert concise("--isolated").code == 1
    assert concise("--extend-select=FSD002").code == 1
    (here / "fsdplint.toml").write_text("output-format = 'json'\n")
    assert json.loads(run("check", "src/a.py").out)["checked"] == 1
    (here / "fsdplint.toml").write_text("ingore = []\n")
    file = here / "fsdplint.toml"
    message = f"fsdplint: {file}: ingore: unknown key; did you mean 'ignore'?\n"
    assert run("check") == Ran(2, "", message)


def test_settings_that_leave_no_rule(here: Path) -> None:
    (here / "a.py").write_text(IDLE)
    file = here / "fsdplint.toml"
    leaves_none = "ignore: disables all selected rules"
    for text, message in (
        ("select = ['FSD302']\nignore = ['direct-forward']\n", leaves_none),
        ("ignore = ['ALL']\n", leaves_none),
        ("select = []\n", "select: selects no rule"),
    ):
        file.write_text(text)
        for command in (["check"], ["baseline", "write"]):
            assert run(*command) == Ran(2, "", f"fsdplint: {file}: {message}\n")
    file.write_text("select = ['FSD302']\n")
    ran = run("check", "--ignore=FSD302")
    assert ran == Ran(2, "", "fsdplint: no rule is left: --ignore disables all selected rules\n")
    file.write_text("select = ['FSD001']\n")
    assert concise("--ignore=FSD302").code == 0
    assert concise("--select=FSD002,FSD302", "--ignore=FSD301").code == 1


def test_a_file_with_no_rule_left_is_not_checked(here: Path) -> None:
    (here / "a.py").write_text(IDLE)
    (here / "b.py").write_text(FIXED)
    (here / "fsdplint.toml").write_text("[per-file-ignores]\n'a.py' = ['ALL']\n")
    assert concise() == Ran(0, "No findings in 1 file (1 without sharding); 1 file skipped.\n", "")
    ended = json.loads(run("check", "--output-format=json").out)["files"][0]
    reason = "per-file-ignores disables all rules for it"
    assert ended == {"path": "a.py", "state": "skipped", "reason": reason}


def test_a_folder_that_is_excluded_whole_says_so(here: Path) -> None:
    for name in ("src/a.py", "src/old/b.py", "empty/c.txt"):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(IDLE)
    (here / "fsdplint.toml").write_text("exclude = ['*.py', 'old']\n")
    excluded = "fsdplint: src: all 2 Python files in it are excluded\n"
    ran = concise("src", "empty")
    assert (ran.code, ran.err) == (
        2,
        f"{excluded}fsdplint: empty: contains no Python file to check\n",
    )
    (here / "src/a.py").unlink()
    ran = concise("src")
    said = "fsdplint: src: its only Python file is excluded\n"
    assert (ran.code, ran.err) == (2, said)


def test_excluded_files_are_checked_when_given(here: Path) -> None:
    (here / "old.py").write_text(IDLE)
    (here / "a.py").write_text(FIXED)
    (here / "fsdplint.toml").write_text("exclude = ['old.py']\n")
    assert concise().code == 0
    assert concise("old.py").code == 1


def test_standard_input() -> None:
    ran = concise("-", stdin=IDLE)
    assert (ran.code, ran.out.splitlines()[0]) == (1, f"<stdin>:1:8: {LINE}")
    ran = concise("-", "--stdin-filename=pkg/a.py", stdin=IDLE)
    assert ran.out.splitlines()[0] == f"pkg/a.py:1:8: {LINE}"
    assert concise("-", stdin=b"\xff").code == 2


def test_what_is_read_has_an_end(here: Path) -> None:
    (here / "log").symlink_to("/dev/zero")
    message = "fsdplint: log: larger than 20 MB; pass only its end\n"
    assert run("explain", "--error=log") == Ran(2, "", message)
    with Path("/dev/zero").open("rb") as endless:
        command = [sys.executable, "-m", "fsdplint", "check", "-"]
        done = subprocess.run(command, stdin=endless, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "fsdplint: <stdin>: larger than 50 MB\n")


def test_fixing_standard_input_prints_it_and_reports_aside() -> None:
    ran = concise("-", "--fix", stdin=b"\xef\xbb\xbfy\r\n" + IDLE.encode())
    assert ran.code == 0
    assert ran.out.encode() == b"\xef\xbb\xbfy\r\n" + FIXED.encode()
    assert ran.err == f"Fixed 1 finding.\n{CLEAN}"
    assert concise("-", "--fix", stdin=FIXED).out == FIXED
    broken = concise("-", "--fix", stdin="def f(:\n")
    assert (broken.code, broken.out) == (1, "def f(:\n")


def test_fix_writes_and_diff_shows(here: Path) -> None:
    data = b"\xef\xbb\xbf# caf\xc3\xa9\r\n" + IDLE.encode() + b"y = 2\r"
    real = here / "real.py"
    real.write_bytes(data)
    real.chmod(0o750)
    (here / "sub").mkdir()
    (here / "pyproject.toml").write_text("")
    (here / "sub/link.py").symlink_to(real)
    shown = concise("sub", "--diff")
    assert shown.code == 1
    assert "-x = 1  # fsdplint: ignore[direct-forward]\n+x = 1\n" in shown.out
    assert shown.out.startswith("--- sub/link.py\n+++ sub/link.py\n")
    assert shown.err == f"Would fix 1 finding. After that:\n{CLEAN}"
    assert real.read_bytes() == data
    assert concise("sub", "--fix") == Ran(0, CLEAN, "Fixed 1 finding.\n")
    assert real.read_bytes() == data.replace(IDLE.encode(), FIXED.encode())
    assert (here / "sub/link.py").is_symlink()
    assert real.stat().st_mode & 0o777 == 0o750
    left = ["pyproject.toml", "real.py", "sub"]
    assert sorted(path.name for path in here.iterdir()) == left
    assert concise("sub", "--diff") == Ran(0, "", CLEAN)


BAD = """\
from torch import nn
from torch.distributed.fsdp import fully_shard
model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
for layer in model:
    fully_shard(layer)
fully_shard(model)
model.forward(1), model.forward(2)
"""


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("final", [True, False])
def test_a_diff_is_a_patch(here: Path, mark: bytes, newline: bytes, final: bool) -> None:
    text = f"{IDLE}y = 'é'\n{IDLE}".encode().replace(b"\n", newline)
    data = mark + (text if final else text.removesuffix(newline))
    (here / "a.py").write_bytes(data)
    patch = concise("--diff").out.encode()
    subprocess.run(["git", "apply", "-p0", "-"], input=patch, cwd=here, check=True)
    patched = (here / "a.py").read_bytes()
    (here / "a.py").write_bytes(data)
    assert concise("--fix").code == 0
    assert (
        patched == (here / "a.py").read_bytes() == data.replace(b"  # " + IDLE[9:-1].encode(), b"")
    )


def test_comments_are_added_for_what_is_found(here: Path) -> None:
    (here / "a.py").write_text(BAD)
    (here / "b.py").write_text(IDLE)
    (here / "c.py").write_text(FIXED)
    added = f"{BAD[:-1]}  # fsdplint: ignore[direct-forward] -- old code\n"
    ran = concise("--add-ignore= old code", "--diff")
    assert (ran.code, ran.out.splitlines()[-1]) == (1, f"+{added.splitlines()[-1]}")
    assert ran.err.splitlines()[0] == "Would suppress 2 findings. After that:"
    assert (here / "a.py").read_text() == BAD
    ran = concise("--add-ignore=old code")
    assert (ran.code, ran.err) == (1, "Suppressed 2 findings.\n")
    assert ran.out.splitlines()[0] == f"b.py:1:8: {LINE}"
    assert [(here / f"{name}.py").read_text() for name in "abc"] == [added, IDLE, FIXED]
    assert concise("a.py") == Ran(0, "No findings in 1 file.\n", "")
    assert concise("a.py", "--add-ignore=again") == Ran(0, "No findings in 1 file.\n", "")
    assert concise("-", "--add-ignore=old code", stdin=BAD).out == added


def test_a_diff_is_coloured_as_its_reports_are(here: Path) -> None:
    (here / "a.py").write_text(IDLE)
    lines = concise("--diff", FORCE_COLOR="1").out.splitlines()
    assert lines[2] == "\x1b[36m@@ -1 +1 @@\x1b[0m"
    assert [line[:6] for line in lines[3:]] == ["\x1b[31m-", "\x1b[32m+"]
    assert "\x1b" not in concise("--diff", FORCE_COLOR="1", NO_COLOR="1").out


def test_a_diff_with_findings_left_is_not_clean(here: Path) -> None:
    (here / "a.py").write_text("x = 1  # fsdplint: ignore[nope]\n")
    ran = concise("--diff")
    assert (ran.code, ran.out) == (1, "")
    assert "FSD002 unused-suppression" in ran.err
    reason = (
        "unused-suppression is not fixed: the intended suppression is unclear; correct the "
        "comment by hand"
    )
    assert ran.err.splitlines()[0] == f"fsdplint: a.py:1:8: {reason}"
    assert concise("--fix").code == 1
    assert run("check", "--fix").err == ""  # where the report tells it


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (
            b"# coding: utf-7\n" + IDLE.encode() + b"y = '+AGE-'\n",
            "its bytes are not in the standard form of utf-7; edit it by hand",
        ),
        (
            b"# fsdplint: ignore[direct-forward] -- coding: latin-1\ny = '\xc3\xa9'\n",
            "its encoding would change the edited text; edit it by hand",
        ),
    ],
)
def test_a_fix_that_would_change_other_bytes_is_taken_back(
    here: Path, data: bytes, reason: str
) -> None:
    (here / "a.py").write_bytes(data)
    (here / "b.py").write_text(IDLE)
    ran = concise("--fix")
    assert ran.code == 1
    note, count, why = ran.err.splitlines()
    assert note == f"fsdplint: a.py: a fix of unused-suppression was rolled back: {reason}"
    assert count == "Fixed 1 finding."
    assert why.endswith(f": unused-suppression is not fixed: the fix was rolled back: {reason}")
    assert ran.out.splitlines()[-1] == "Found 1 finding in 1 file; 2 files without sharding."
    assert (here / "a.py").read_bytes() == data
    assert (here / "b.py").read_text() == FIXED


def test_a_fix_after_which_a_rule_crashes_is_taken_back(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = iter((True, False))

    def crash(*_: object) -> tuple[()]:
        return () if next(runs) else 1 // 0  # type: ignore[return-value] # that is the crash

    monkeypatch.setattr("fsdplint.rules.direct_forward.reports", crash)
    (here / "a.py").write_text(IDLE)
    (here / "b.py").write_text("# fully_shard\n")  # without which no rule has anything to see
    ran = concise("--fix")
    assert (ran.code, (here / "a.py").read_text()) == (1, IDLE)
    assert (
        "a fix of unused-suppression was rolled back: the fixed code cannot be checked" in ran.err
    )


def test_deeply_nested_code_is_fixed(here: Path) -> None:
    deep = f"{IDLE}y = {'f(' * 150}1{')' * 150}\n"
    (here / "a.py").write_text(deep)
    assert concise("--fix") == Ran(0, CLEAN, "Fixed 1 finding.\n")
    assert (here / "a.py").read_text() == deep.replace(IDLE, FIXED)


def test_fixing_a_notebook_leaves_its_json(here: Path) -> None:
    cell = {"cell_type": "code", "source": ["%time y\n", IDLE.strip()], "outputs": [{"a": [1]}]}
    data = json.dumps({"metadata": {}, "cells": [cell], "nbformat": 4}, indent=1)
    (here / "a.ipynb").write_text(data)
    assert concise().out.splitlines()[0] == f"a.ipynb:cell 1:2:8: {LINE}"
    assert concise("--fix").code == 0
    assert (here / "a.ipynb").read_text() == data.replace(IDLE.strip(), FIXED.strip())


def read_only(here: Path, _: pytest.MonkeyPatch) -> None:
    (here / "a.py").chmod(0o444)


def full_disk(_here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> None:
        monkeypatch.undo()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)


def edited_meanwhile(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync

    def edit(_: int) -> None:
        (here / "a.py").write_text(f"y = 1\n{IDLE}")
        monkeypatch.setattr(os, "fsync", real)

    monkeypatch.setattr(os, "fsync", edit)


@pytest.mark.parametrize(
    ("spoil", "reason", "line"),
    [
        (read_only, "not written: the file is read-only", 1),
        (full_disk, "cannot be written: No space left on device", 1),
        (edited_meanwhile, "not written: the file changed after it was read", 2),
    ],
)
@pytest.mark.parametrize("command", [["--fix"], ["--add-ignore=why"]])
def test_what_cannot_be_written_is_found_still_and_fails_the_run(
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[Path, pytest.MonkeyPatch], None],
    reason: str,
    line: int,
    command: list[str],
) -> None:
    fixing = command == ["--fix"]
    text = IDLE if fixing else BAD.replace(", model.forward(2)", "")
    done = "Fixed 1 finding.\n" if fixing else "Suppressed 1 finding.\n"
    line += 0 if fixing else 6
    for name in "ab":
        (here / f"{name}.py").write_text(text)
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules[__name__], "IDLE", text)  # what is edited meanwhile
        spoil(here, patch)
        ran = concise(*command, "--output-format=json=out.json")
    assert (ran.code, ran.err) == (2, f"{done}fsdplint: a.py: {reason}\n")
    found, *more, summary = ran.out.splitlines()
    assert found.startswith(f"a.py:{line}:") and more == []
    assert summary.startswith("Found 1 finding in 1 file (1 fixable with --fix")
    document = json.loads((here / "out.json").read_text())
    assert [finding["path"] for finding in document["findings"]] == ["a.py"]
    assert document["failures"] == [{"path": "a.py", "reason": reason}]
    assert (here / "a.py").read_text().endswith(text)
    assert (here / "b.py").read_text() != text


def test_statistics(here: Path) -> None:
    (here / "a.py").write_text(IDLE * 2)
    assert concise("--statistics").out.splitlines()[0] == "2 FSD002 [*] unused-suppression"
    assert json.loads(run("check", "--statistics", "--output-format=json").out) == [
        {"code": "FSD002", "rule": "unused-suppression", "count": 2, "fixable": 2}
    ]


def test_output_file(here: Path) -> None:
    (here / "a.py").write_text(IDLE)
    assert concise("--output-file=out.txt", FORCE_COLOR="1") == Ran(1, "", "")
    assert (here / "out.txt").read_text().startswith(f"a.py:1:8: {LINE}\n")
    ran = concise("--output-file=no/out.txt")
    assert (ran.code, ran.err) == (2, "fsdplint: no/out.txt: No such file or directory\n")


def test_an_output_file_that_is_a_pipe_or_a_link_stays_one(here: Path) -> None:
    (here / "a.py").write_text(FIXED)
    os.mkfifo(here / "pipe")
    (here / "link").symlink_to(here / "real")
    reader = os.open(here / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    concise("--output-file=pipe")
    concise("--output-file=link")
    text = CLEAN.encode()
    assert (os.read(reader, 100), (here / "real").read_bytes()) == (text, text)
    os.close(reader)
    assert (here / "pipe").is_fifo() and (here / "link").is_symlink()


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "0"}, False),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({"CLICOLOR_FORCE": "1"}, True),
        ({"CLICOLOR_FORCE": "0"}, False),
        ({"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}, False),
        ({"FORCE_COLOR": "0", "CLICOLOR_FORCE": "1"}, True),
    ],
)
def test_colour_when_piped(here: Path, environment: dict[str, str], coloured: bool) -> None:
    (here / "a.py").write_text(IDLE)
    assert ("\x1b[" in run("check", **environment).out) is coloured


@pytest.mark.parametrize(
    ("arguments", "environment", "coloured"),
    [
        (["check", "--color=always"], {"NO_COLOR": "1"}, True),
        (["check", "--color", "never"], {"FORCE_COLOR": "1"}, False),
        (["check", "--color", "auto"], {"FORCE_COLOR": "1"}, True),
        (["check", "--color", "auto"], {}, False),
        (["--color", "always", "check"], {}, True),
        (["--color", "always", "check", "--color", "auto"], {}, False),
    ],
)
def test_the_color_option_comes_before_the_environment(
    here: Path, arguments: list[str], environment: dict[str, str], coloured: bool
) -> None:
    (here / "a.py").write_text(IDLE)
    assert ("\x1b[" in run(*arguments, **environment).out) is coloured


@pytest.mark.parametrize("command", ["inspect", "explain", "verify"])
def test_other_commands_take_the_color_option(command: str) -> None:
    ran = run(command, "--color=blue")
    message = "'blue' is not one of 'auto', 'always', 'never'."
    assert ran == Ran(2, "", f"fsdplint: Invalid value for '--color': {message}\n")


def test_the_environment_chooses_the_format(here: Path) -> None:
    (here / "a.py").write_text(IDLE)
    shown = run("check", FSDPLINT_OUTPUT_FORMAT="concise sarif=out.sarif")
    assert shown == concise()
    assert json.loads((here / "out.sarif").read_text())["version"] == "2.1.0"
    assert concise(FSDPLINT_OUTPUT_FORMAT="json") == shown
    (here / "fsdplint.toml").write_text("output-format = 'json'\n")
    assert run("check", FSDPLINT_OUTPUT_FORMAT="concise") == shown
    assert run("check", FSDPLINT_OUTPUT_FORMAT="xml").code == 2


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["a.py"], '; did you mean "fsdplint check a.py"?'),
        (["my run.py", "--fix"], "; did you mean \"fsdplint check 'my run.py' --fix\"?"),
        (["src"], '; did you mean "fsdplint check src"?'),
        (["-"], '; did you mean "fsdplint check -"?'),
        (["gone.ipynb"], '; did you mean "fsdplint check gone.ipynb"?'),
        (["chekc", "a.py"], "; did you mean 'check'?"),
        (
            ["gone"],
            "; the commands are baseline, check, clean, explain, inspect, mcp, migrate, new, "
            "rules, server, verify",
        ),
    ],
)
def test_a_path_in_place_of_a_command_suggests_check(
    here: Path, words: list[str], hint: str
) -> None:
    (here / "src").mkdir()
    assert run(*words) == Ran(2, "", f"fsdplint: no such command {words[0]!r}{hint}\n")


@pytest.mark.parametrize(
    ("environment", "linked"),
    [
        ({}, False),
        ({"TERM": "xterm-kitty"}, True),
        ({"TERM_PROGRAM": "vscode"}, True),
        ({"VTE_VERSION": "7600"}, True),
        ({"TERM": "xterm-kitty", "NO_COLOR": "1"}, False),
        ({"TERM": "xterm-kitty", "FORCE_HYPERLINK": "0"}, False),
        ({"FORCE_HYPERLINK": "1", "NO_COLOR": "1"}, True),
    ],
)
def test_links_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], linked: bool
) -> None:
    for name in ("TERM", "TERM_PROGRAM", *_TERMINALS, "FORCE_HYPERLINK", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    _, stdout = pty.openpty()
    with os.fdopen(stdout, "w") as terminal:
        assert wants_links(terminal) is linked


@pytest.mark.parametrize(("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colour_on_a_terminal(here: Path, environment: dict[str, str], coloured: bool) -> None:
    (here / "a.py").write_text(IDLE)
    terminal, stdout = pty.openpty()
    command = [sys.executable, "-m", "fsdplint", "check"]
    subprocess.run(command, stdout=stdout, env={**os.environ, **environment}, check=False)
    os.close(stdout)
    with os.fdopen(terminal, "rb") as stream:
        assert (b"\x1b[" in stream.read1()) is coloured


def test_a_closed_pipe_is_quiet(here: Path) -> None:
    (here / "a.py").write_text(IDLE * 3000)
    command = f"{sys.executable} -m fsdplint check | head -c 10"
    done = subprocess.run(command, shell=True, capture_output=True, check=False)
    assert (done.stdout, done.stderr) == (b"a.py:1:8: ", b"")


# The disk takes its time in the middle of a write.
SLOW = """\
import os, sys, time
from fsdplint.cli.main import main
os.fsync = lambda _: (print("writing", flush=True), time.sleep(600))
main(["check", "--fix", "a.py"])
"""


def test_an_interrupt_ends_with_130_and_leaves_files_whole(here: Path) -> None:
    (here / "a.py").write_text(IDLE)
    # A job that a script put into the background starts with the signal ignored.
    heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", SLOW]
    process = subprocess.Popen(command, stdout=pipe, stderr=pipe, preexec_fn=heed)
    assert process.stdout is not None and process.stdout.readline() == b"writing\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LONG)
    assert (process.returncode, out, err) == (130, b"", b"\n")
    assert (here / "a.py").read_text() == IDLE
    assert [path.name for path in here.iterdir()] == ["a.py"]


def test_what_the_system_refuses_is_one_line(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (here / "a.py").write_text(IDLE)
    monkeypatch.setattr(plan, "run", refuse)
    assert concise() == Ran(2, "", "fsdplint: No space left on device\n")


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("path", ["a.py", "gone.py"])
def test_what_cannot_be_said_fails_the_run(here: Path, stream: str, path: str) -> None:
    (here / "a.py").write_text(IDLE)
    command = [sys.executable, "-m", "fsdplint", "check", path]
    with Path("/dev/full").open("wb") as full:
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: full}
        done = subprocess.run(command, **streams, check=False)  # type: ignore[call-overload]
    silent = (stream, path) == ("stderr", "a.py")  # nothing is said there
    assert (done.returncode, b"Traceback" in (done.stderr or b"")) == (1 if silent else 2, False)


def test_a_message_is_no_longer_than_a_screen(here: Path) -> None:
    (here / "a.py").write_text(FIXED)
    ran = run("check", f"--select={'a' * 100_000}")
    assert (ran.code, ran.err.count("\n"), ran.err[-3:]) == (2, 1, "a…\n")
    assert len(ran.err) < 2_100


def test_closed_streams_are_no_error(here: Path) -> None:
    (here / "a.py").write_text(IDLE)
    command = [sys.executable, "-m", "fsdplint", "check", "a.py"]
    closed = ["bash", "-c", '"$@" >&- 2>&-', "-", *command]
    assert subprocess.run(closed, check=False).returncode == 1


def test_an_internal_error_is_one_line(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object, **__: object) -> None:
        raise ZeroDivisionError("no such\nthing")

    (here / "a.py").write_text(FIXED)
    monkeypatch.setattr(plan, "run", crash)
    assert concise() == Ran(
        2,
        "",
        "fsdplint: internal error, please report it: ZeroDivisionError: no such thing"
        " (FSDPLINT_DEBUG=1 prints the traceback)\n",
    )


def test_a_rule_that_crashes_fails_the_run_and_the_rest_goes_on(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise ZeroDivisionError("why")

    monkeypatch.setattr("fsdplint.rules.direct_forward.reports", crash)
    (here / "a.py").write_text(IDLE)
    (here / "b.py").write_text("# fully_shard\n")
    ran = concise()
    assert ran.code == 2
    assert "internal error in direct-forward, please report it: ZeroDivisionError" in ran.err
    assert ran.out.splitlines()[0] == f"a.py:1:8: {LINE}"


PREVIEW = """\
from torch import bfloat16
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from gpt import GPT

fully_shard(GPT(), mp_policy=MixedPrecisionPolicy(bfloat16, reduce_dtype=bfloat16))
"""


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ([], False),
        (["--preview"], True),
        (["--select=direct-forward,low-precision-reduce"], True),
        (["--select=FSD3,FSD403"], True),
        (["--select=FSD3,FSD4"], False),
        (["--select=FSD3,FSD4", "--preview"], True),
    ],
)
def test_preview_rules(here: Path, options: list[str], found: bool) -> None:
    (here / "a.py").write_text(PREVIEW)
    ran = concise("--pedantic", "--fail-on=note", *options)
    assert (ran.code, "FSD403" in ran.out) == (int(found), found)


def test_preview_rules_are_listed_as_such() -> None:
    listed = [line for line in run("rules").out.splitlines() if line.endswith(" (preview)")]
    assert [line.split()[0] for line in listed] == [rule.code for rule in RULES if rule.preview]
    data = json.loads(run("rules", "--output-format=json").out)
    assert [rule["preview"] for rule in data] == [rule.preview or None for rule in RULES]


@pytest.mark.parametrize("word", ["direct-forward", "FSD302", "fsd302"])
def test_explain_prints_the_page(word: str) -> None:
    ran = run("explain", word)
    assert ran.code == 0
    assert ran.out.startswith("# direct-forward (FSD302)\n")


def test_explain_suggests() -> None:
    message = "fsdplint: unknown rule 'direct-foward'; did you mean 'direct-forward'?\n"
    assert run("explain", "direct-foward") == Ran(2, "", message)


DIRECT = """\
from torch import nn
from torch.distributed.fsdp import fully_shard

model = fully_shard(nn.Linear(8, 4))
model.forward([[1.0] * 8])
"""
MIXED = (
    "RuntimeError: aten.addmm.default got mixed torch.Tensor and DTensor, need to convert all "
    "torch.Tensor to DTensor before calling distributed operators!\n"
)
ERROR = f'[rank0]:   File "/elsewhere/train.py", line 5, in <module>\n[rank0]: {MIXED}'


def test_explain_prints_a_page_as_json() -> None:
    explained = json.loads(run("explain", "FSD302", "--output-format=json").out)
    assert explained["name"] == "direct-forward"
    assert explained["page"].startswith("# direct-forward (FSD302)\n")


def test_explain_an_error() -> None:
    ran = run("explain", "--error", "-", stdin=ERROR)
    assert ran.code == 0
    direct, custom, parameter = ran.out.split("\n\n")
    first, error, *_, last = direct.splitlines()
    assert first == (
        "FSD302 direct-forward: `.forward` of a sharded module is called directly, which bypasses "
        "its hooks"
    )
    assert error.startswith("  error: RuntimeError: … got mixed torch.Tensor and DTensor, need")
    assert last == "  page: fsdplint explain direct-forward"
    assert custom.endswith("\n  page: fsdplint explain custom-method-bypasses-hooks")
    assert parameter.endswith("\n  page: fsdplint explain parameter-used-outside-its-unit\n")


def test_explain_an_error_with_its_script(here: Path) -> None:
    (here / "train.py").write_text(DIRECT)
    (here / "log.txt").write_text(ERROR)
    ran = run("explain", "--error", "log.txt", "train.py")
    assert ran.code == 0
    assert [line for line in ran.out.splitlines() if "train.py" in line] == [
        "train.py:5:1: FSD302 [*] direct-forward: `model.forward` bypasses the hooks that "
        "all-gather the parameters of `model` (sharded on line 4): the forward crashes, or leaves "
        "every unit gathered"
    ]
    told = json.loads(run("explain", "--error=log.txt", "train.py", "--output-format=json").out)
    assert [rule["rule"] for rule in told["rules"]] == [
        "direct-forward",
        "custom-method-bypasses-hooks",
        "parameter-used-outside-its-unit",
    ]
    assert [finding["start"]["line"] for finding in told["findings"]] == [5]
    assert told["lines"] == [{"path": "train.py", "line": 5}]


def test_an_error_without_a_finding_names_its_lines(here: Path) -> None:
    (here / "train.py").write_text("import torch\n\n\n\ncompute(torch)\n")
    ran = run("explain", "--error", "-", "train.py", stdin=ERROR)
    assert ran.code == 0
    assert ran.out.endswith(
        "These rules find nothing in the given paths.\n"
        "The error names these lines:\n  train.py:5: compute(torch)\n"
    )


def test_the_launchers_summary_counts_if_nothing_else_does() -> None:
    summary = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\n"
    ran = run("explain", "--error", "-", stdin=summary)
    assert (ran.code, ran.out.splitlines()[0]) == (0, f"error: {summary[:-2]}")
    ran = run("explain", "--error", "-", stdin=f"CUDA out of memory.\n{summary}")
    assert [line for line in ran.out.splitlines() if line.startswith("error: ")] == [
        "error: CUDA out of memory."
    ]


def test_an_error_that_no_rule_knows(here: Path) -> None:
    (here / "train.py").write_text("1 / 0\n")
    error = '  File "train.py", line 1, in <module>\nZeroDivisionError: division by zero\n'
    named = "The error names these lines:\n  train.py:1: 1 / 0\n"
    assert run("explain", "--error", "-", stdin=error) == Ran(
        1, "No rule and no known cause matches this error.\n", ""
    )
    with_script = run("explain", "--error", "-", "train.py", stdin=error)
    assert with_script == Ran(1, f"No rule and no known cause matches this error.\n{named}", "")


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--error=log.txt"], "log.txt: No such file or directory"),
        ([], "explain requires one RULE, or --error FILE"),
        (["direct-forward", "FSD301"], "explain requires one RULE, or --error FILE"),
        (["--error=-", "none.py"], "none.py: no such file or folder"),
    ],
)
def test_what_cannot_be_explained(arguments: list[str], message: str) -> None:
    ran = run("explain", *arguments, stdin=ERROR)
    assert (ran.code, ran.err) == (2, f"fsdplint: {message}\n")


def test_rules_are_listed() -> None:
    ran = run("rules")
    assert [line.split()[:2] for line in ran.out.splitlines()] == [
        [rule.code, rule.name] for rule in RULES
    ]
    listed = json.loads(run("rules", "--output-format=json").out)
    assert [rule["name"] for rule in listed] == [rule.name for rule in RULES]
    assert [rule["fix"] for rule in listed] == [r.fix and r.fix.value for r in RULES]


@pytest.mark.parametrize(
    "text",
    [
        "(" * 300 + ")" * 300,
        "fsdp = " + "a + " * 20_000 + "a\n",
        "if fsdp:\n  y\n" + "elif z:\n  y\n" * 3000,
        "fsdp\n" + "f(" * 190 + ")" * 190 + "\n",
        "fsdp = " + "-" * 2_900 + "1\n",
        "fsdp = " + "not " * 3_000 + "1\n",
        "fsdp = " + "'a' " * 3_000 + "\n",
        "fsdp\n" + "".join(f"{' ' * n}if x:\n" for n in range(90)) + " " * 90 + "y\n",
        "print 'fsdp'\n",
        "\x0c\n\x1a",
        "def f[T](x: T) -> T:\n    return x\ntype A = f'{'fsdp'}'\n",
    ],
    ids=[
        "parens",
        "sum",
        "elif",
        "calls",
        "minus",
        "not",
        "strings",
        "blocks",
        "python2",
        "control",
        "new syntax",
    ],
)
def test_hostile_text_neither_crashes_nor_hangs(here: Path, text: str) -> None:
    (here / "a.py").write_text(text)
    (here / "b.py").write_text(IDLE)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = spawn("check", "--output-format=concise", "a.py", "b.py")
    assert (ran.code, ran.err) == (1, "")
    assert f"b.py:1:8: {LINE}\n" in ran.out
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime - before.ru_utime < 30
