"""What a killed run leaves is removed by the next one, and nothing else is."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from test_cli import spawn

from fsdplint.verify.request import Request
from fsdplint.verify.run import verify
from fsdplint.verify.warm_launcher import Warm
from fsdplint.verify.workspace import remove_leftovers, workspace

HOLD = """
import sys
from fsdplint.verify.workspace import workspace
with workspace() as folder:
    print(folder, flush=True)
    sys.stdin.read()
"""
MANY = """
import os
from fsdplint.verify.workspace import workspace
for number in range(40):
    with workspace() as folder:
        (folder / "file").write_text("x")
        assert os.listdir(folder).count("file") == 1
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def killed() -> Path:
    """Returns the folder of a run that was killed."""
    run = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert run.stdout
    folder = Path(run.stdout.readline().strip())
    run.kill()
    run.communicate()
    return folder


def test_the_next_run_removes_what_a_killed_one_left(
    tmp_path: Path, temporary: Path, warm: Warm
) -> None:
    left = killed()
    (left / "up" / "deep").mkdir(parents=True)
    (left / "up" / "deep" / "copy.bin").touch()
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.py").touch()
    verify(Request("train.py", ranks=1, device="cpu"), tmp_path / "project", launcher=warm)
    assert list(temporary.iterdir()) == []


def test_clean_removes_it_too(temporary: Path) -> None:
    killed()
    ran = spawn("clean")
    assert ran.code == 0
    assert ran.out.endswith("Removed the leftovers of 1 killed run of verify.\n")
    assert list(temporary.iterdir()) == []
    assert "verify" not in spawn("clean").out


def test_a_run_under_way_is_left_alone() -> None:
    with workspace() as mine:
        run = subprocess.Popen(
            [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert run.stdout
        other = Path(run.stdout.readline().strip())
        run.send_signal(signal.SIGSTOP)  # alive, though it does nothing
        assert remove_leftovers() == 0
        assert mine.exists()
        assert other.exists()
        run.send_signal(signal.SIGCONT)
        run.communicate()
        assert not other.exists()


def test_what_is_not_ours_is_left_alone(tmp_path: Path, temporary: Path) -> None:
    lock, node = "fsdplint.lock", platform.node()
    elsewhere = tmp_path / "elsewhere"
    for folder in (temporary / "fsdplint-unlocked", temporary / "fsdplint-linked", elsewhere):
        folder.mkdir()
        (folder / "file").touch()
    (elsewhere / lock).write_text(node)
    (temporary / "fsdplint-linked" / lock).symlink_to(elsewhere / lock)
    (temporary / "fsdplint-link").symlink_to(elsewhere)
    (temporary / "fsdplint-file").touch()
    other_machine = temporary / "fsdplint-other"
    other_machine.mkdir()
    (other_machine / lock).write_text(f"not {node}")
    before = sorted(tmp_path.rglob("*"))
    assert remove_leftovers() == 0
    assert sorted(tmp_path.rglob("*")) == before


def test_another_users_folder_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    left = killed()
    monkeypatch.setattr(os, "geteuid", lambda: left.stat().st_uid + 1)
    assert remove_leftovers() == 0
    assert left.exists()


def test_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "data").touch()
    left = killed()
    (left / "up").mkdir()
    (left / "up" / "data").symlink_to(outside)
    (left / "link").symlink_to(outside)
    assert remove_leftovers() == 1
    assert not left.exists()
    assert (outside / "data").exists()


def test_runs_at_once_leave_each_other_alone(temporary: Path) -> None:
    runs = [
        subprocess.Popen([sys.executable, "-c", MANY], stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    for _ in range(5):
        killed()
    assert [run.communicate()[1] for run in runs] == [""] * 4
    remove_leftovers()
    assert list(temporary.iterdir()) == []


def test_folders_that_forbid_changes_are_removed(temporary: Path) -> None:
    code = (
        "import os\n"
        "from fsdplint.verify.workspace import workspace\n"
        "if os.geteuid() == 0: os.setegid(12345); os.seteuid(12345)\n"
        "with workspace() as folder:\n"
        "    (folder / 'a' / 'b').mkdir(parents=True)\n"
        "    (folder / 'a' / 'b' / 'file').touch()\n"
        "    (folder / 'a' / 'b').chmod(0)\n"
        "    (folder / 'a').chmod(0o500)\n"
    )
    for folder in (temporary, *list(temporary.parents)[:3]):
        folder.chmod(0o777)
    subprocess.run([sys.executable, "-c", code], check=True)
    assert list(temporary.iterdir()) == []
