"""The scratch copy: what the script writes touches nothing, and nothing needless is copied."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fsdplint.verify import journal, watch
from fsdplint.verify import workspace as workspace_module
from fsdplint.verify.request import Request
from fsdplint.verify.run import verify
from fsdplint.verify.warm_launcher import Job, Warm
from fsdplint.verify.workspace import LINKED_FROM, VerifyError, stage, surround


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    return folder


def contents(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def test_files_are_copied_and_may_be_written_to(source: Path, tmp_path: Path) -> None:
    (source / "package").mkdir()
    (source / "package" / "train.py").write_text("x = 1\n")
    (source / "empty").mkdir()
    stage(source, tmp_path / "copy")
    copy = tmp_path / "copy" / "package" / "train.py"
    copy.write_text("x = 2\n")
    assert (source / "package" / "train.py").read_text() == "x = 1\n"
    assert contents(tmp_path / "copy") == {"package", "package/train.py", "empty"}


def test_what_no_script_reads_is_left_out(source: Path, tmp_path: Path) -> None:
    for name in (".git", "__pycache__", "venv", "wandb", "environment"):
        (source / name).mkdir()
        (source / name / "file").touch()
    (source / "environment" / "pyvenv.cfg").touch()
    (source / "train.py").touch()
    stage(source, tmp_path / "copy")
    assert contents(tmp_path / "copy") == {"train.py"}


def test_large_files_and_links_are_linked(source: Path, tmp_path: Path) -> None:
    with (source / "data.bin").open("wb") as file:
        file.truncate(LINKED_FROM)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "set").touch()
    (source / "data").symlink_to(tmp_path / "elsewhere")
    (source / "broken").symlink_to(tmp_path / "nothing")
    stage(source, tmp_path / "copy")
    copy = tmp_path / "copy"
    assert {path.name for path in copy.iterdir()} == {"data.bin", "data"}
    assert (copy / "data.bin").readlink() == source / "data.bin"
    assert (copy / "data" / "set").exists()


def test_a_copy_below_its_source_does_not_hold_itself(source: Path) -> None:
    (source / "train.py").touch()
    stage(source, source / "scratch")
    assert contents(source / "scratch") == {"train.py"}


def test_too_many_files_are_refused(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace_module, "MOST_FILES", 2)
    for name in "abc":
        (source / name).touch()
    with pytest.raises(VerifyError, match="more than 2 files and folders; verify copies the"):
        stage(source, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_links_inside_the_folder_stay_inside_the_copy(source: Path, tmp_path: Path) -> None:
    (source / "runs" / "5").mkdir(parents=True)
    (source / "src").mkdir()
    (source / "src" / "train.py").touch()
    (source / "venv").mkdir()
    for link, to in (("latest", "runs/5"), ("train.py", "src/train.py"), ("env", "venv")):
        (source / link).symlink_to(to)
    stage(source, tmp_path / "copy")
    copy = tmp_path / "copy"
    assert {name: (copy / name).readlink() for name in ("latest", "train.py", "env")} == {
        "latest": copy / "runs" / "5",
        "train.py": copy / "src" / "train.py",
        "env": source / "venv",
    }


def test_there_is_an_end_to_copying(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace_module, "COPIED", 5)
    for name in ("a", "b"):
        (source / name).write_text("four")
    stage(source, tmp_path / "copy")
    assert sorted(path.is_symlink() for path in (tmp_path / "copy").iterdir()) == [False, True]


def test_pipes_and_what_has_just_gone_are_passed_by(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(source / "pipe")
    (source / "gone").touch()

    def vanish(file: Path, _: Path) -> None:
        raise FileNotFoundError(2, "No such file or directory", str(file))

    monkeypatch.setattr(workspace_module.shutil, "copy2", vanish)
    stage(source, tmp_path / "copy")
    assert contents(tmp_path / "copy") == set()


def test_a_file_that_cannot_be_read_is_named(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source / "secret").touch()

    def refuse(file: Path, _: Path) -> None:
        raise PermissionError(13, "Permission denied", str(file))

    monkeypatch.setattr(workspace_module.shutil, "copy2", refuse)
    with pytest.raises(VerifyError, match=r"cannot copy .*secret: Permission denied"):
        stage(source, tmp_path / "copy")


def test_what_lies_beside_is_found_from_the_copy(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "data").mkdir(parents=True)
    (project / "data" / "set").touch()
    (project / "scripts" / "runs").mkdir(parents=True)
    (project / "scripts" / "common.py").touch()
    copy = tmp_path / "records" / "up" / "up" / "cwd"
    stage(project / "scripts" / "runs", copy)
    surround(project / "scripts" / "runs", copy)
    assert (copy / ".." / "common.py").exists()
    assert (copy / ".." / ".." / "data" / "set").exists()
    assert contents(copy) == set()


def test_a_script_that_is_not_copied_is_named(source: Path) -> None:
    (source / "wandb").mkdir()
    (source / "wandb" / "train.py").touch()
    with pytest.raises(VerifyError, match=r"wandb/train\.py is in a folder that verify does not"):
        verify(Request("wandb/train.py"), source)


def test_a_script_behind_a_link_finds_its_modules(source: Path, warm: Warm) -> None:
    (source / "src").mkdir()
    (source / "src" / "helper.py").touch()
    (source / "src" / "main script.py").write_text("import helper\nprint(helper.__file__)\n")
    (source / "train.py").symlink_to("src/main script.py")
    found = verify(Request("train.py", ranks=1, device="cpu"), source, launcher=warm)
    assert [rank.ended for rank in found.ranks] == ["script"]
    assert found.ranks[0].output.endswith("/up/up/cwd/src/helper.py")


def test_of_all_that_a_script_prints_the_end_is_kept(source: Path, warm: Warm) -> None:
    (source / "train.py").write_text(
        "import sys\nsys.stdout.buffer.write(bytes(range(256)) * 10**4)\nprint('last')\n"
    )
    found = verify(Request("train.py", ranks=1, device="cpu"), source, launcher=warm)
    assert found.ranks[0].output.endswith("last")
    assert len(found.ranks[0].output) < 2**16


def test_the_end_of_a_text_outlives_its_cut(tmp_path: Path) -> None:
    output = tmp_path / "0.output"
    output.write_text("x" * 2**20 + "the reason\n")
    assert journal.whole_end(output).endswith("the reason\n")
    journal.cut(output)
    assert output.stat().st_size == 0
    assert journal.whole_end(output).endswith("the reason\n")
    output.write_text("more\n")
    assert journal.whole_end(output).endswith("the reason\nmore\n")


def test_what_a_script_prints_fills_no_disk(
    source: Path, warm: Warm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "MOST_OUTPUT", 2**21)
    (source / "train.py").write_text(
        "import time\nfor _ in range(40):\n    print('x' * 2**20, flush=True)\n"
        "    time.sleep(0.05)\nprint('last')\n"
    )
    sizes: list[int] = []

    def launcher(request: Request, folder: Path) -> Job:
        folders.append(folder)
        return warm(request, folder)

    def tell(_: str) -> None:
        sizes.extend(file.stat().st_size for file in folders[0].glob("0.output"))

    folders: list[Path] = []
    request = Request("train.py", ranks=1, device="cpu")
    found = verify(request, source, launcher=launcher, progress=tell)
    assert found.ranks[0].output.endswith("last")
    assert max(sizes) < 30 * 2**20
