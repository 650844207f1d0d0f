"""`fsdplint verify`; what its reports look like is in tests/verify/report."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from test_cli import Ran, run, spawn
from verifier import Verifier

from fsdplint.process import terminal
from fsdplint.process.terminal import status_line
from fsdplint.verify import run as running
from fsdplint.verify.remedies import with_remedies
from fsdplint.verify.report import render
from fsdplint.verify.request import Request
from fsdplint.verify.verdict import RankSummary, Status, Verdict, Verification
from fsdplint.verify.workspace import VerifyError

SCRIPT = """\
import sys, torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard

assert sys.argv[1:] == ["--rate", "0.1"], sys.argv
dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
open("written", "w").close()
"""
RESUMING = ("--resume-args", "--resume 'last checkpoint'")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("NO_COLOR", "FORCE_COLOR", "FSDPLINT_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("")
    return tmp_path


def made(status: Status = Status.CONFIRMED, failure: str = "") -> Verification:
    verdict = Verdict("forward", "Forwards have hooks.", status, "3 forwards")
    rank = RankSummary(0, "crash" if failure else "steps", "", 3, "cpu", None, ())
    return Verification(
        "train.py", (), "2.13.0", "cpu", 1, 2.0, (verdict,), (rank,), failure=failure
    )


Verify = Callable[..., Verification]


def answers(verification: Verification | BaseException, asked: list[Request]) -> Verify:
    def verify(request: Request, directory: Path, **_: Any) -> Verification:
        assert directory == Path.cwd()
        asked.append(request)
        if isinstance(verification, BaseException):
            raise verification
        return verification

    return verify


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Request]]:
    """Puts a result in the place of a run; the requests it is asked with."""

    def give(verification: Verification | BaseException) -> list[Request]:
        asked: list[Request] = []
        monkeypatch.setattr(running, "verify", answers(verification, asked))
        return asked

    return give


def announced(ran: Ran) -> str:
    first, rest = ran.err.split("\n", 1)
    assert first == (
        f"fsdplint: running train.py on 2 ranks, in a scratch copy of {Path.cwd()}; "
        "files it writes elsewhere stay"
    )
    return rest


@pytest.mark.parametrize(
    ("verification", "code", "last"),
    [
        (made(), 0, "No clause is violated: 1 confirmed (exit 0)"),
        (made(Status.VIOLATED), 1, "Violated: forward (exit 1)"),
        (
            made(failure="rank 0 died"),
            2,
            "The script did not finish: rank 0 died (exit 2)",
        ),
        (made(Status.VIOLATED, failure="rank 0 died"), 1, "Violated: forward (exit 1)"),
    ],
)
def test_exit_codes(
    given: Callable[..., list[Request]], verification: Verification, code: int, last: str
) -> None:
    given(verification)
    ran = run("verify", "train.py")
    assert (ran.code, announced(ran), ran.out.splitlines()[-1]) == (code, "", last)


def test_options_become_the_request(given: Callable[..., list[Request]]) -> None:
    asked = given(made())
    run("verify", "train.py")
    run("verify", "./train.py", "--nproc=4", "--steps=all", "--device=cpu", "--", "--nproc", "a b")
    run("verify", "train.py", "--timeout=9", "--steps", "1", "--reference", "--nnodes=1:2", "x")
    run("verify", "train.py", "--master-port=1", "--rdzv-id=job", "--rdzv-backend=c10d")
    run("verify", "train.py", "--clauses=units, resume", "--resume", "--nproc=3")
    run("verify", "train.py", "--resume", "--resume-nproc=4", "--resume-nproc=1", *RESUMING)
    assert asked == [
        Request("train.py"),
        Request("train.py", ("--nproc", "a b"), 4, None, "cpu"),
        Request("train.py", ("x",), 2, 1, timeout=9.0, launcher=("--nnodes=1:2",), reference=True),
        Request("train.py", launcher=("--rdzv-backend=c10d", "--rdzv-id=job", "--master-port=1")),
        Request("train.py", (), 3, resume=(3,), clauses=("units", "resume")),
        Request("train.py", resume=(4, 1), resume_arguments=("--resume", "last checkpoint")),
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope.py"], "Invalid value for 'SCRIPT': File 'nope.py' does not exist."),
        (["."], "Invalid value for 'SCRIPT': File '.' is a directory."),
        ([], "Missing argument 'SCRIPT'."),
        (
            ["train.py", "--steps=0"],
            "Invalid value for '--steps': '0' is neither a number of steps nor 'all'.",
        ),
        (
            ["train.py", "--steps=few"],
            "Invalid value for '--steps': 'few' is neither a number of steps nor 'all'.",
        ),
        (["train.py", "--nproc=0"], "Invalid value for '--nproc': 0 is not in the range x>=1."),
        (
            ["train.py", "--timeout=0"],
            "Invalid value for '--timeout': 0.0 is not in the range x>0.",
        ),
        (
            ["train.py", "--resume-nproc=2"],
            "--resume-args and --resume-nproc require --resume",
        ),
        (
            ["train.py", "--resume", "--reference"],
            "--resume and --reference cannot be combined",
        ),
        (["train.py", "--resume", "--nnodes=2"], "--resume supports only one node"),
        (["train.py", "--clauses=resume"], "the clause resume requires --resume"),
        (
            ["train.py", "--clauses", "units,optimiser"],
            "Invalid value for '--clauses': 'optimiser' is not a clause; did you mean 'optimizer'?",
        ),
        (["train.py", "--clauses="], "Invalid value for '--clauses': name at least one clause."),
        (
            ["train.py", "--resume", "--resume-args='"],
            'Invalid value for --resume-args: "\'": No closing quotation',
        ),
        (
            ["../train.py"],
            "../train.py is outside the working directory, which is all that verify copies",
        ),
    ],
)
def test_wrong_usage_is_one_line(here: Path, arguments: list[str], message: str) -> None:
    (here.parent / "train.py").write_text("")
    assert run("verify", *arguments) == Ran(2, "", f"fsdplint: {message}\n")


def test_a_script_option_before_the_dashes_is_explained() -> None:
    ran = run("verify", "train.py", "--rate=0.1")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("fsdplint: No such option")
    assert ran.err.endswith(" Put the script's own options after --.\n")


def test_without_torch_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert run("verify", "train.py") == Ran(
        2,
        "",
        "fsdplint: verify needs PyTorch to run the script: pip install 'fsdplint[verify]'\n",
    )


@pytest.mark.parametrize("old", ["2.5.1+cu124", "1.13.1"])
def test_an_old_torch_is_told_apart(monkeypatch: pytest.MonkeyPatch, old: str) -> None:
    monkeypatch.setattr(metadata, "version", lambda _: old)
    assert run("verify", "train.py") == Ran(
        2,
        "",
        f"fsdplint: verify needs PyTorch 2.6 or newer, but this is {old}: "
        "pip install 'fsdplint[verify]'\n",
    )


@pytest.mark.parametrize("version", ["2.6.0", "2.13.0+cpu", "3.0.0a0+git1"])
def test_newer_ones_are_not(
    given: Callable[..., list[Request]], monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    given(made())
    monkeypatch.setattr(metadata, "version", lambda _: version)
    assert run("verify", "train.py").code == 0


def test_what_keeps_it_from_running_is_one_line(given: Callable[..., list[Request]]) -> None:
    for error in (VerifyError("no\nway"), VerifyError("too many files")):
        given(error)
        ran = run("verify", "train.py")
        told = " ".join(str(error).split())
        assert (ran.code, ran.out, announced(ran)) == (2, "", f"fsdplint: {told}\n")


def test_an_interrupt(given: Callable[..., list[Request]]) -> None:
    given(KeyboardInterrupt())
    assert run("verify", "train.py").code == 130


def test_formats_and_files(here: Path, given: Callable[..., list[Request]]) -> None:
    given(made(Status.VIOLATED))
    assert json.loads(run("verify", "train.py", "--output-format=json").out)["exit_code"] == 1
    assert run("verify", "train.py", "--output-format=html").out.startswith("<!doctype html>\n")
    ran = run("verify", "train.py", "--output-format=html", "--output-file=report.html")
    assert (ran.code, ran.out) == (1, "")
    assert announced(ran) == "fsdplint: Violated: forward (exit 1)\n"
    assert (here / "report.html").read_text().startswith("<!doctype html>\n")


def test_a_report_that_could_not_be_written_is_told_before_the_run(
    given: Callable[..., list[Request]],
) -> None:
    asked = given(made())
    assert run("verify", "train.py", "--output-file=no/where") == Ran(
        2, "", "fsdplint: no/where: No such file or directory\n"
    )
    assert asked == []


def test_nothing_that_a_script_names_or_says_reaches_the_terminal_as_control(
    here: Path, given: Callable[..., list[Request]]
) -> None:
    (here / "a\x1b[2J.py").write_text("")
    given(replace(made(failure="rank 0 \x1b[2J died"), script="a\x1b[2J.py"))
    for format_ in ("text", "compact", "json", "html"):
        ran = run("verify", "a\x1b[2J.py", f"--output-format={format_}")
        assert "\x1b" not in ran.out + ran.err
    ran = run("verify", "a\x1b[2J.py", "--output-file=report")
    assert ran.err.endswith(": rank 0 \\x1b[2J died (exit 2)\n")
    given(VerifyError("cannot copy \x1b[2J: Permission denied"))
    assert run("verify", "train.py").err.endswith("cannot copy \\x1b[2J: Permission denied\n")


def test_the_report_is_as_wide_as_it_may_be(
    given: Callable[..., list[Request]], monkeypatch: pytest.MonkeyPatch
) -> None:
    given(made(failure="word " * 60))
    for columns, widest in (("60", 60), ("300", 120)):
        monkeypatch.setenv("COLUMNS", columns)
        ran = run("verify", "train.py")
        longest = max(len(line) for line in ran.out.splitlines() if not line.startswith("!"))
        assert widest - 5 < longest <= widest
    monkeypatch.delenv("COLUMNS")
    assert terminal.columns(None) == 100


def test_progress_is_for_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    leader, follower = pty.openpty()
    with os.fdopen(follower, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        with status_line() as tell:
            tell("1 of 2 ranks started")
            tell("1 of 2 ranks started")
    expected = b"\r\x1b[Kfsdplint: 1 of 2 ranks started (0 s)\r\x1b[K"
    shown = b""
    while len(shown) < len(expected):  # a terminal hands over what it has so far
        shown += os.read(leader, 1000)
    assert shown == expected
    os.close(leader)
    with (Path.cwd() / "err").open("w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        with status_line() as tell:
            tell("1 of 2 ranks started")
    assert (Path.cwd() / "err").read_text() == ""


def test_the_command_line_starts_light() -> None:
    code = (
        "import sys, fsdplint.cli.main; "
        "print(sorted({'torch', 'libcst', 'sarif_om', 'fsdplint.rules', 'fsdplint.engine', "
        "'fsdplint.verify.run', 'fsdplint.verify.report', 'importlib.resources'} "
        "& set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_page_shows_what_is_reported(verifier: Verifier) -> None:
    root = Path(__file__).parent.parent
    page = (root / "docs" / "verify.md").read_text("utf-8")
    found = re.search(r"<!-- verify (\S+) -->\n```text\n(.*?)\n```", page, re.DOTALL)
    assert found is not None
    script = root / "examples" / "broken" / found[1]
    verification = with_remedies(verifier(script), script.parent)
    text = render(verification, "text", script.parent, color=False, width=90)
    assert set(found[2].split("\n\n")) - set(text.split("\n\n")) == set()


def test_it_runs_the_script_under_torchrun(here: Path) -> None:
    (here / "train.py").write_text(SCRIPT)
    ran = spawn("verify", "train.py", "--steps=2", "--device=cpu", "--", "--rate", "0.1")
    lines = ran.out.splitlines()
    assert (ran.code, announced(ran)) == (0, ""), ran.out
    assert lines[0] == "train.py --rate 0.1"
    assert lines[1].endswith("2 ranks, 2 steps, " + lines[1].rpartition(", ")[2])
    assert "sharding of Sequential: 1 FSDP2 unit, 4 parameters, 30 elements" in lines
    assert "  each rank holds 50.0% of the model (an even split is 50.0%)" in lines
    assert sorted(path.name for path in here.iterdir()) == ["train.py"]
