"""What a script writes, moves and deletes stays in the scratch copy."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest
from verifier import Verifier

from fsdplint.verify.rank.scratch import Scratch
from fsdplint.verify.workspace import LINKED_FROM


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder outside the copy, with a file and a folder in it."""
    folder = tmp_path / "outside"
    (folder / "inner").mkdir(parents=True)
    (folder / "file").write_text("original")
    (folder / "inner" / "file").write_text("original")
    return folder


@pytest.fixture
def copy(tmp_path: Path, outside: Path) -> Path:
    """A scratch copy with links to both."""
    root = tmp_path / "copy"
    root.mkdir()
    (root / "file").symlink_to(outside / "file")
    (root / "folder").symlink_to(outside)
    return root


@pytest.fixture
def scratch(copy: Path, tmp_path: Path) -> Scratch:
    return Scratch(str(copy), str(tmp_path / "lock"))


def test_a_file_to_be_read_stays_a_link(scratch: Scratch, copy: Path) -> None:
    scratch.audit("open", (str(copy / "file"), "r", os.O_RDONLY))
    assert (copy / "file").is_symlink()


@pytest.mark.parametrize(
    ("flags", "content"),
    [
        (os.O_WRONLY | os.O_APPEND, "original"),
        (os.O_RDWR, "original"),
        (os.O_RDWR | os.O_TRUNC, ""),
    ],
)
def test_a_file_to_be_written_becomes_the_copys_own(
    scratch: Scratch, copy: Path, flags: int, content: str
) -> None:
    scratch.audit("open", (str(copy / "file"), None, flags))
    assert not (copy / "file").is_symlink()
    assert ((copy / "file").read_text() if (copy / "file").exists() else "") == content


@pytest.mark.parametrize("event", ["os.chmod", "os.chown", "os.utime", "os.truncate"])
def test_a_file_whose_mode_or_times_change_becomes_the_copys_own(
    scratch: Scratch, copy: Path, event: str
) -> None:
    scratch.audit(event, (3, 0o600))  # an open file is the copy's own already
    assert (copy / "file").is_symlink()
    scratch.audit(event, (str(copy / "file"), 0o600))
    assert not (copy / "file").is_symlink()
    assert (copy / "file").read_text() == "original"


def test_a_folder_gives_way_to_one_of_links(scratch: Scratch, copy: Path, outside: Path) -> None:
    scratch.audit("os.mkdir", (str(copy / "folder" / "inner" / "new"), 0o777, -1))
    assert {str(path.relative_to(copy)): path.is_symlink() for path in copy.rglob("*")} == {
        "file": True,
        "folder": False,
        "folder/file": True,
        "folder/inner": False,
        "folder/inner/file": True,
    }
    assert (copy / "folder" / "inner" / "file").read_text() == "original"
    assert sorted(path.name for path in outside.rglob("*")) == ["file", "file", "inner"]


def test_a_link_of_the_scripts_own_is_left_alone(scratch: Scratch, copy: Path) -> None:
    (copy / "step-1").write_text("one")
    (copy / "latest").symlink_to("step-1")
    scratch.own(copy / "latest", keep=True)
    assert (copy / "latest").readlink() == Path("step-1")


def test_paths_outside_the_copy_are_left_alone(scratch: Scratch, outside: Path) -> None:
    (outside / "link").symlink_to(outside / "file")
    scratch.own(outside / "link", keep=False)
    assert (outside / "link").is_symlink()


SCRIPT = """
import os, shutil, sqlite3
from pathlib import Path
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
os.chdir(Path(__file__).parent)
assert Path("large.bin").is_symlink() and Path("runs").is_symlink()
dist.barrier()
if dist.get_rank() == 0:
    torch.save({"step": 1}, "large.bin")
    with open("appended.bin", "ab") as file:
        file.write(b"more")
    Path("runs/new").mkdir()
    Path("runs/log.txt").write_text("new")
    Path("runs/old/log.txt").unlink()
    Path("runs/moved").rename("runs/elsewhere")
    shutil.rmtree("runs/gone")
    sqlite3.connect("runs/database.db").execute("create table mine (x)")
dist.barrier()
assert torch.load("large.bin") == {"step": 1}
assert Path("appended.bin").stat().st_size == LINKED_FROM + 4
assert sorted(os.listdir("runs")) == ["database.db", "elsewhere", "log.txt", "new", "old"]
"""


def test_what_a_script_writes_touches_nothing(verifier: Verifier, tmp_path: Path) -> None:
    runs, directory = tmp_path / "runs", tmp_path / "project"
    for name in ("old", "moved", "gone"):
        (runs / name).mkdir(parents=True)
        (runs / name / "log.txt").write_text(name)
    (runs / "log.txt").write_text("original")
    sqlite3.connect(runs / "database.db").execute("create table theirs (x)")
    directory.mkdir()
    (directory / "runs").symlink_to(runs)
    for name in ("large.bin", "appended.bin"):
        with (directory / name).open("wb") as file:
            file.truncate(LINKED_FROM)
    (directory / "train.py").write_text(SCRIPT.replace("LINKED_FROM", str(LINKED_FROM)))
    before = contents(tmp_path)

    run = verifier.observe(directory / "train.py")

    assert [rank.ended and rank.ended.traceback for rank in run.ranks] == ["", ""]
    assert contents(tmp_path) == before


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
