"""`fsdplint migrate` as its users meet it: the plan, the diff, answers, and what is written."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from textwrap import indent
from typing import Any, NamedTuple

import pytest

from fsdplint.cli.main import main
from fsdplint.engine.program import Program, analyze
from fsdplint.engine.project.project import Reader
from fsdplint.migrate.fsdp2 import FSDP2
from fsdplint.migrate.plan import make_plan

_PLAIN = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

model = FSDP(model)
"""
_ASKING = """\
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


def shard(model, strategy):
    return FSDP(model, sharding_strategy=strategy)
"""
_DIFF = """\
--- train.py
+++ train.py
@@ -1,3 +1,3 @@
-from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
+from torch.distributed.fsdp import fully_shard
 
-model = FSDP(model)
+fully_shard(model)
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").touch()
    return tmp_path / "train.py"


class Ran(NamedTuple):
    """The exit code of a command, and what it printed."""

    code: object
    out: str
    err: str


class Run:
    """`fsdplint migrate`, called."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *arguments: str) -> Ran:
        with pytest.raises(SystemExit) as ended:
            main(["migrate", *arguments])
        return Ran(ended.value.code, *self.capsys.readouterr())


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(capsys)


_TOLD = (
    "Nothing was written: --yes --verify writes what a run proves, --unproven writes without a "
    "proof.\n"
)


def test_nothing_is_written_that_is_neither_proven_nor_wanted_so(script: Path, run: Run) -> None:
    script.write_text(_PLAIN)
    for options in ([], ["--yes"], ["--diff"]):
        ran = run("fsdp2", "train.py", *options)
        assert ran.out == (
            "train.py\n"
            "      3  shard `model` with `fully_shard`\n"
            "Complete: 1 change in 1 file.\n"
            "Not proven: only a run tells whether it trains the same; --verify makes one.\n"
            f"{_DIFF}"
        )
        told = "" if "--diff" in options else _TOLD
        assert (ran.code, ran.err, script.read_text()) == (1, told, _PLAIN)


def test_what_is_written_has_nothing_left_to_migrate(script: Path, run: Run) -> None:
    script.write_text(_PLAIN)
    ran = run("fsdp2", "train.py", "--unproven")
    assert (ran.code, ran.out.splitlines()[-1]) == (0, "Wrote 1 file.")
    again = run("fsdp2", "train.py", "--unproven")
    assert (again.code, again.out) == (0, "Nothing to migrate.\n")


def test_a_program_is_changed_completely_or_not_at_all(script: Path, run: Run) -> None:
    text = f"{_PLAIN}other = FSDP(net, **settings())\n"
    script.write_text(text)
    ran = run("fsdp2", "train.py", "--unproven")
    assert ran.code == 1
    assert (
        "      4  unchanged: `FSDP(net, **settings())`: `**settings()` hides the arguments; "
        "write them out, then migrate again\n" in ran.out
    )
    assert "Not complete: 1 place to change by hand.\n" in ran.out
    assert (ran.err, script.read_text()) == ("Nothing was written.\n", text)


def test_questions_are_answered_by_a_file_or_by_yes(script: Path, run: Run, tmp_path: Path) -> None:
    script.write_text(_ASKING)
    asked = run("fsdp2", "train.py")
    assert (asked.code, asked.out) == (
        1,
        "train.py\n"
        "      5  question: Which strategy does `strategy` select? [full-shard | shard-grad-op | "
        "hybrid-shard | no-shard]\n"
        "Answer with --yes, or by lines in a file for --answers:\n"
        '  "train.py:5:sharding-strategy" = "full-shard"\n'
        "1 question to answer before the plan is complete.\n",
    )
    answers = tmp_path / "answers.toml"
    answers.write_text('"train.py:5:sharding-strategy" = "shard-grad-op"\n"train.py:9:x" = "y"\n')
    told = run("fsdp2", "train.py", "--answers", "answers.toml")
    assert "+    fully_shard(model, reshard_after_forward=False)\n" in told.out
    assert "fsdplint: train.py:9:x: nothing asks for this answer\n" in told.err
    taken = run("fsdp2", "train.py", "--yes", "--unproven")
    assert taken.out.startswith(
        "train.py:5:sharding-strategy: Which strategy does `strategy` select? full-shard\n"
    )
    assert script.read_text().endswith("    fully_shard(model)\n    return model\n")


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ("a = 1", "answers.toml: the answer to 'a' is not a string"),
        ("a = ", "answers.toml: not valid TOML: Invalid value (at end of document)"),
        (None, "answers.toml: No such file or directory"),
        (
            '"train.py:5:sharding-strategy" = "zero3"',
            "train.py:5:sharding-strategy: 'zero3' is not an answer; choose one of full-shard, "
            "shard-grad-op, hybrid-shard, no-shard",
        ),
    ],
)
def test_bad_answers_are_an_error(answers: str | None, said: str, script: Path, run: Run) -> None:
    script.write_text(_ASKING)
    if answers is not None:
        (script.parent / "answers.toml").write_text(answers)
    ran = run("fsdp2", "train.py", "--answers", "answers.toml")
    assert ran == (2, "", f"fsdplint: {said}\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [(None, "train.py: no such file or folder"), ("def", "train.py: line 1: invalid syntax")],
)
def test_a_file_that_cannot_be_read_is_an_error(
    text: str | None, said: str, script: Path, run: Run
) -> None:
    if text is not None:
        script.write_text(text)
    assert run("fsdp2", "train.py") == (2, "", f"fsdplint: {said}\n")


@pytest.mark.parametrize("other", ["--verify", "--diff"])
def test_what_is_written_unproven_is_neither_proven_nor_shown(other: str, run: Run) -> None:
    said = f"fsdplint: --unproven writes; it does not go with {other}\n"
    assert run("fsdp2", "train.py", "--unproven", other) == (2, "", said)


def test_a_check_that_fails_makes_no_plan(
    script: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("why")

    script.write_text(_PLAIN)
    monkeypatch.setattr("fsdplint.rules.direct_forward.reports", fail)
    ran = run("fsdp2", "train.py")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("fsdplint: train.py: internal error in direct-forward, please report")


def test_files_of_two_projects_are_an_error(script: Path, run: Run, tmp_path: Path) -> None:
    script.write_text(_PLAIN)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "pyproject.toml").touch()
    (tmp_path / "other" / "train.py").write_text(_PLAIN)
    said = (
        f"these files are in several projects ({tmp_path}, {tmp_path}/other); migrate one at a time"
    )
    assert run("fsdp2", "train.py", "other/train.py") == (2, "", f"fsdplint: {said}\n")


def test_each_text_is_analyzed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan starts again with the programs that use a file with changes, without its end."""
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "shared.py").write_text(f"def shard(net):\n{indent(_PLAIN, '    ')}")
    for name in ("train", "other"):
        (tmp_path / f"{name}.py").write_text("from shared import shard\n\nshard(net)\n")
    analyzed = []

    def counted(
        root: Path, files: Iterable[Path], read: Reader, *args: Any, **settings: Any
    ) -> Program:
        focus = settings.get("focus", args[0])
        analyzed.append([read(path) for path in focus])
        return analyze(root, files, read, *args, **settings)

    monkeypatch.setattr("fsdplint.engine.program.analyze", counted)
    monkeypatch.setattr("fsdplint.migrate.analyses.analyze", counted)
    plan = make_plan(FSDP2, [str(tmp_path / "train.py")], {})
    assert plan.is_complete
    assert [len(texts) for texts in analyzed] == [2, 3, 3, 3]
    assert len(set(map(tuple, analyzed))) == 4
