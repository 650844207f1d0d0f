"""What a hook that passes single files, in any batches, relies on. It runs for real in `.ci`."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_check import SHARD, TRAIN, tree
from test_cli import FIXED, IDLE, LINE, Ran, concise

BUILD = """\
import torch


def build(model):
    return torch.optim.AdamW(model.parameters())
"""
CALLER = """\
import torch
from lib.build import build
from lib.shard import shard

model = torch.nn.Linear(8, 8)
optimizer = build(model)
shard(model)
"""
STALE = "FSD301 [*] optimizer-before-sharding"
CLEAN = "No findings in 2 files (2 without sharding).\n"


@pytest.fixture(autouse=True)
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()
    return tmp_path


def hook(*arguments: str, **more: str) -> Ran:
    return concise("--force-exclude", *arguments, **more)


def places(ran: Ran) -> list[str]:
    return [line.split(": ", 1)[0] for line in ran.out.splitlines()[:-1]]


def test_a_helper_is_found_bad_through_its_caller_and_reported_with_both(
    repository: Path,
) -> None:
    tree(repository, **{"lib/build.py": BUILD, "lib/shard.py": SHARD, "run.py": CALLER})
    ran = hook("lib/build.py")
    assert (ran.code, places(ran)) == (1, ["lib/build.py:5:12"])
    assert STALE in ran.out
    ran = hook("run.py")
    assert (ran.code, places(ran)) == (1, ["lib/build.py:5:12"])
    assert STALE.replace(" [*]", "") in ran.out  # shown, but not fixed in a file that is not given
    assert hook("lib/shard.py").code == 0
    assert places(hook("run.py", "lib/shard.py", "lib/build.py")) == ["lib/build.py:5:12"]
    assert places(concise()) == ["lib/build.py:5:12"]


def test_an_excluded_caller_counts_no_more_than_in_a_search(repository: Path) -> None:
    tree(repository, **{"lib/build.py": BUILD, "lib/shard.py": SHARD, "old/run.py": CALLER})
    (repository / "fsdplint.toml").write_text('exclude = ["old"]\n')
    assert concise().code == 0
    assert hook("lib/build.py").code == 0
    (repository / "fsdplint.toml").unlink()
    assert hook("lib/build.py").code == 1


def test_given_files_that_are_excluded_are_left_out_on_demand(repository: Path) -> None:
    tree(repository, **{"a.py": FIXED, "old/b.py": IDLE, "build/c.py": IDLE})
    (repository / "fsdplint.toml").write_text('exclude = ["/old"]\n')
    given = ("a.py", "old/b.py", "build/c.py")
    assert places(concise(*given)) == ["build/c.py:1:8", "old/b.py:1:8"]
    summary = "No findings in 1 file (1 without sharding); 2 files skipped.\n"
    assert hook(*given) == Ran(0, summary, "")
    assert hook(*given[1:]) == Ran(0, "No findings in 0 files; 2 files skipped.\n", "")
    assert hook("--fix", *given).code == 0
    assert (repository / "old/b.py").read_text() == IDLE
    (repository / "fsdplint.toml").unlink()
    assert places(hook(*given)) == ["old/b.py:1:8"]


def test_standard_input_that_is_excluded_comes_back_as_it_was(repository: Path) -> None:
    (repository / "fsdplint.toml").write_text('exclude = ["a.py"]\n')
    same = ("--stdin-filename=a.py", "-")
    assert hook("--fix", *same, stdin=IDLE).out == IDLE
    assert concise("--fix", *same, stdin=IDLE).out == FIXED


def test_settings_do_not_depend_on_what_else_is_given(repository: Path) -> None:
    tree(repository, **{"a.py": IDLE, "sub/b.py": IDLE, "sub/deep/c.py": IDLE, "other/d.py": IDLE})
    (repository / "sub/fsdplint.toml").write_text('[per-file-ignores]\n"/b.py" = ["FSD002"]\n')
    (repository / "pyproject.toml").write_text('[tool.fsdplint]\nexclude = ["/other"]\n')
    files = ("a.py", "sub/b.py", "sub/deep/c.py", "other/d.py")
    alone = [place for file in files for place in places(hook(file))]
    assert alone == ["a.py:1:8", "sub/deep/c.py:1:8"]
    assert hook(*files) == Ran(
        1,
        f"a.py:1:8: {LINE}\nsub/deep/c.py:1:8: {LINE}\n"
        "Found 2 findings in 2 files (2 fixable with --fix); 3 files without sharding; "
        "1 file skipped.\n",
        "",
    )
    assert hook(*reversed(files)) == hook(*files)
    assert places(hook("--isolated", *files)) == [
        "a.py:1:8",
        "other/d.py:1:8",
        "sub/b.py:1:8",
        "sub/deep/c.py:1:8",
    ]


def test_each_of_several_settings_has_its_baseline(repository: Path) -> None:
    tree(repository, **{"a.py": TRAIN, "shard.py": SHARD, "sub/b.py": BUILD})
    tree(repository, **{"sub/shard.py": SHARD, "sub/c.py": TRAIN})
    (repository / "sub/fsdplint.toml").write_text('baseline = "known.json"\n')
    (repository / "sub/known.json").write_text(
        '{"version": 1, "findings": [{"path": "c.py", "rule": "optimizer-before-sharding",'
        ' "code": "optimizer = torch.optim.AdamW(model.parameters())"}]}'
    )
    ran = hook("a.py", "sub/c.py")
    assert places(ran) == ["a.py:5:13"]
    assert ran.out.endswith("1 more in the baseline.\n")


def test_a_second_fix_touches_nothing(repository: Path) -> None:
    tree(repository, **{"a.py": IDLE, "sub/b.py": IDLE})
    (repository / "sub/fsdplint.toml").write_text("")
    first = hook("--fix", "a.py", "sub/b.py")
    assert first == Ran(0, CLEAN, "Fixed 2 findings.\n")
    before = [Path(path).stat().st_mtime_ns for path in ("a.py", "sub/b.py")]
    assert hook("--fix", "a.py", "sub/b.py") == Ran(0, CLEAN, "")
    assert [Path(path).stat().st_mtime_ns for path in ("a.py", "sub/b.py")] == before
