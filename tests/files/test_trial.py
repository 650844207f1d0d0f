from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fsdplint.check import check
from fsdplint.engine.frontend import syntax, trial
from fsdplint.engine.frontend.syntax import parse
from fsdplint.files.invalid import InvalidSyntax, TooDemanding
from fsdplint.files.limits import expect_parsable
from fsdplint.outcome import State
from fsdplint.process.stack import deep
from fsdplint.settings.config import defaults

NEAR = {
    "chain": "x = " + "a + " * 300 + "a\n",
    "brackets": "x = " + "(" * 60 + ")" * 60 + "\n",
    "lambdas": "x = " + "lambda: " * 300 + "a\n",
    "elif": "if x:\n  y\n" + "elif z:\n  y\n" * 300,
    "cases": "match x:\n" + "  case 1: y\n" * 300,
    "size": "x = 1\n" * 16_000,
}
FAR = {"one": "x = 1\n", "module": "def f(a):\n    return a.b(c + d)[0]\n" * 500}


def as_command(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """The other process runs ``code`` first."""
    start = f"import sys; sys.path[:] = {sys.path!r}\n{code}"
    monkeypatch.setattr(trial, "command", lambda _: [sys.executable, "-I", "-c", start])


@pytest.mark.parametrize("text", NEAR.values(), ids=NEAR)
def test_text_near_a_limit_is_parsed_after_a_trial(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert expect_parsable(text)
    tried: list[str] = []
    monkeypatch.setattr(syntax, "expect_survived", tried.append)
    assert deep(lambda: parse(text)).exact
    assert tried == [text]


@pytest.mark.parametrize("text", FAR.values(), ids=FAR)
def test_other_text_takes_no_process(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    as_command(monkeypatch, "raise SystemExit(1)")
    assert parse(text).exact


@pytest.mark.parametrize("text", [NEAR["chain"], NEAR["brackets"][:-20], "x = '\ud800'\n"])
def test_what_the_parser_takes_or_refuses_is_survived(text: str) -> None:
    trial.expect_survived(text)


@pytest.mark.parametrize(
    "code",
    [
        "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
        "raise MemoryError",
        "import fsdplint.engine.frontend.trial as trial; trial._BYTES = 2**27; trial.main()",
        "from fsdplint.engine.frontend import trial as t; t._CPU_SECONDS = 1; t._limit()\n"
        "while True: pass",
    ],
    ids=["crash", "error", "memory", "time"],
)
def test_a_parser_that_dies_is_told(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    as_command(monkeypatch, code)
    with pytest.raises(TooDemanding, match="crashes the parser, or takes it more time or memory"):
        deep(lambda: parse(NEAR["chain"]))


def test_a_lower_limit_of_the_user_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    lower = "import resource as r; r.setrlimit(r.RLIMIT_AS, (2**31, 2**31))"
    as_command(monkeypatch, f"{lower}\nfrom fsdplint.engine.frontend.trial import main; main()")
    trial.expect_survived(NEAR["chain"])


def test_text_that_is_no_python_is_told_as_such() -> None:
    with pytest.raises(InvalidSyntax):
        deep(lambda: parse(NEAR["chain"] + "x = = 1\n"))


@pytest.mark.parametrize("python", [None, "", "/nowhere/python"])
def test_without_a_python_to_start_the_limits_do(
    python: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", python)
    assert deep(lambda: parse(NEAR["chain"])).exact


def test_the_other_files_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (
        "import torch",
        "from torch.distributed.fsdp import fully_shard",
        "model = torch.nn.Linear(1, 1)",
        "optimizer = torch.optim.AdamW(model.parameters())",
        "fully_shard(model)",
        "optimizer.step()\n",
    )
    for name, rest in (("a", ""), ("b", NEAR["chain"])):
        (tmp_path / f"{name}.py").write_text("\n".join(lines) + rest)
    assert {Path(f.span.path).name for f in check([tmp_path], defaults()).findings} == {
        "a.py",
        "b.py",
    }
    as_command(monkeypatch, "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    outcome = check([tmp_path], defaults())
    assert {Path(f.span.path).name for f in outcome.findings} == {"a.py"}
    (told,) = [each for each in outcome.accounts if each.state is State.SKIPPED]
    assert told.reason.startswith("crashes the parser")
