from __future__ import annotations

import fcntl
import itertools
import os
from pathlib import Path

import pytest

from fsdplint.files import writing
from fsdplint.files.decoding import SourceError
from fsdplint.files.file import load
from fsdplint.files.writing import replace, write


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_the_file_is_replaced_in_one_step_and_keeps_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_bytes(b"# coding: latin-1\r\nx = '\xe9'\r\n")
    file.chmod(0o754)
    before = file.stat().st_ino
    source = load(file)
    write((source, source.edited(source.text.replace("x", "y"))))
    assert file.read_bytes() == b"# coding: latin-1\r\ny = '\xe9'\r\n"
    assert file.stat().st_mode & 0o777 == 0o754
    assert file.stat().st_ino != before
    assert names(tmp_path) == ["a.py"]


def test_what_a_link_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    file = tmp_path / "real/a.py"
    file.write_text("x\n")
    link = tmp_path / "link.py"
    link.symlink_to(file)
    source = load(link)
    write((source, source.edited("y\n")))
    assert link.is_symlink()
    assert file.read_text() == "y\n"
    assert names(tmp_path) == ["link.py", "real"]


def test_a_file_that_has_changed_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("x\n")
    source = load(file)
    file.write_text("z\n")
    with pytest.raises(SourceError, match="not written: the file changed after it was read"):
        write((source, source.edited("y\n")))
    assert file.read_text() == "z\n"


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("at", ["fsync", "replace"])
def test_of_several_files_all_are_changed_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str, fault: BaseException
) -> None:
    for name in "abc":
        (tmp_path / name).write_text("x\n")
    real, calls = getattr(os, at), itertools.count()

    def fail(*arguments: object) -> None:
        if next(calls) == 1:
            raise fault
        real(*arguments)

    monkeypatch.setattr(os, at, fail)
    sources = [load(tmp_path / name) for name in "abc"]
    changes = [(source, source.edited("y\n")) for source in sources]
    expected = KeyboardInterrupt if isinstance(fault, KeyboardInterrupt) else SourceError
    with pytest.raises(expected, match=r"b: cannot be written: No space|^$"):
        write(*changes)
    assert [(tmp_path / name).read_text() for name in "abc"] == ["x\n"] * 3
    assert names(tmp_path) == ["a", "b", "c"]
    write(*changes)
    assert [(tmp_path / name).read_text() for name in "abc"] == ["y\n"] * 3


def test_a_change_that_cannot_be_taken_back_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.replace

    def edited_meanwhile(name: str, target: Path) -> None:
        real(name, target)
        target.write_text("z\n")
        (tmp_path / "b").write_text("z\n")

    for name in "ab":
        (tmp_path / name).write_text("x\n")
    sources = [load(tmp_path / name) for name in "ab"]
    monkeypatch.setattr(os, "replace", edited_meanwhile)
    reason = "a: changed, but other files were not; restoring it failed"
    with pytest.raises(SourceError, match=reason):
        write(*((source, source.edited("y\n")) for source in sources))
    assert [(tmp_path / name).read_text() for name in "ab"] == ["z\n"] * 2


def test_a_file_that_is_gone_is_not_made(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("x\n")
    source = load(file)
    file.unlink()
    with pytest.raises(SourceError, match="cannot be written: No such file or directory"):
        write((source, source.edited("y\n")))
    assert names(tmp_path) == []


@pytest.mark.parametrize("fault", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_on_the_way_leaves_the_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: BaseException
) -> None:
    def fail(*_: object) -> None:
        raise fault

    file = tmp_path / "a.py"
    file.write_text("x\n")
    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(type(fault)):
        replace(file, b"y\n")
    assert file.read_text() == "x\n"
    assert names(tmp_path) == ["a.py"]


def test_a_new_file_has_the_usual_mode(tmp_path: Path) -> None:
    (tmp_path / "usual").write_text("")
    replace(tmp_path / "new", b"y\n")
    assert (tmp_path / "new").read_bytes() == b"y\n"
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_the_owner_and_the_extended_attributes_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.py"
    file.write_text("x\n")
    kept: dict[str, bytes] = {}
    # Not every file system has them.
    monkeypatch.setattr(os, "listxattr", lambda _: ["user.note"])
    monkeypatch.setattr(os, "getxattr", lambda path, _: f"{path.name}'s".encode())
    monkeypatch.setattr(os, "setxattr", lambda _, name, value: kept.update({name: value}))
    if os.getuid() == 0:  # nobody else may give a file away
        os.chown(file, 12345, 54321)
    before = file.stat()
    source = load(file)
    write((source, source.edited("y\n")))
    after = file.stat()
    assert file.read_text() == "y\n"
    assert (after.st_uid, after.st_gid, after.st_mode) == (
        before.st_uid,
        before.st_gid,
        before.st_mode,
    )
    assert kept == {"user.note": b"a.py's"}


def test_an_owner_that_cannot_be_kept_keeps_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    file = tmp_path / "a.py"
    file.write_text("x\n")
    source = load(file)
    monkeypatch.setattr(os, "chown", refuse)
    monkeypatch.setattr(writing, "_owner", lambda path: (len(path.name), 0))
    with pytest.raises(SourceError, match="cannot be written: Operation not permitted"):
        write((source, source.edited("y\n")))
    assert file.read_text() == "x\n"
    assert names(tmp_path) == ["a.py"]


def test_a_read_only_file_is_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("x\n")
    file.chmod(0o444)
    source = load(file)
    with pytest.raises(SourceError, match="not written: the file is read-only"):
        write((source, source.edited("y\n")))
    assert file.read_text() == "x\n"


def test_a_change_at_the_last_moment_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.py"
    file.write_text("x\n")
    source = load(file)
    monkeypatch.setattr(os, "fsync", lambda _: file.write_text("z\n"))
    with pytest.raises(SourceError, match="not written: the file changed after it was read"):
        write((source, source.edited("y\n")))
    assert file.read_text() == "z\n"
    assert names(tmp_path) == ["a.py"]


def test_what_a_killed_process_left_is_removed_and_what_another_writes_is_not(
    tmp_path: Path,
) -> None:
    file = tmp_path / "a.py"
    file.write_text("x\n")
    (tmp_path / ".fsdplint-left.unfinished").write_text("y\n")
    (tmp_path / ".fsdplint-link.unfinished").symlink_to(file)
    os.mkfifo(tmp_path / ".fsdplint-pipe.unfinished")
    # What may be the user's own baseline.
    (tmp_path / ".fsdplint-baseline").write_text("")
    with (tmp_path / ".fsdplint-busy.unfinished").open("w") as busy:
        fcntl.flock(busy, fcntl.LOCK_EX)
        replace(file, b"y\n")
        assert names(tmp_path) == [
            ".fsdplint-baseline",
            ".fsdplint-busy.unfinished",
            ".fsdplint-link.unfinished",
            "a.py",
        ]


def test_a_name_of_any_length_can_be_written(tmp_path: Path) -> None:
    file = tmp_path / f"{'a' * 252}.py"
    file.write_text("x\n")
    source = load(file)
    write((source, source.edited("y\n")))
    assert file.read_text() == "y\n"
