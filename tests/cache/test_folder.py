"""The folder of the cache: whatever is the matter with it, a run ends as it would without."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kept import UNKNOWN, Runs, entries, write

from fsdplint.cache import folder
from fsdplint.cli.main import main

TAG = "Signature: 8a477f597d28d172789f06886806bc55\n"


def only() -> Path:
    (entry,) = entries()
    return entry


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def replaced(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        path.unlink()
        make(path)

    return spoil


def linked(path: Path) -> None:
    elsewhere = path.parent.parent / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def huge(path: Path) -> None:
    os.truncate(path, 20_000_001)


SPOILT: dict[str, Callable[[Path], None]] = {
    "cut": cut,
    "flipped": flipped,
    "empty": emptied,
    "huge": huge,
    "gone": Path.unlink,
    "other": lambda path: path.write_bytes(b"\x80\x04K\x01.") and None,
    "pipe": replaced(os.mkfifo),
    "link": linked,
    "broken link": replaced(lambda path: path.symlink_to("nowhere")),
}


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_a_spoilt_entry_is_written_again(runs: Runs, spoil: Callable[[Path], None]) -> None:
    made = runs.made()
    assert runs.known() == made
    spoil(only())
    assert runs.known() == UNKNOWN
    assert runs.made() == made
    assert runs.known() == made


@pytest.mark.usefixtures("project")
def test_a_folder_in_the_place_of_an_entry_is_left(runs: Runs) -> None:
    made = runs.made()
    replaced(Path.mkdir)(only())
    for _ in range(2):
        assert runs.known() == UNKNOWN
        assert runs.made() == made
    assert len(list(only().parent.iterdir())) == 4  # and nothing unfinished


def file_in_its_place(cache: Path) -> None:
    cache.write_text("")


def files_of_others(cache: Path) -> None:
    write(cache, {"thesis.txt": "…"})


def tag_of_others(cache: Path) -> None:
    write(cache, {"CACHEDIR.TAG": TAG})


FOLDERS = {"file": file_in_its_place, "others": files_of_others, "tag": tag_of_others}


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("spoil", FOLDERS.values(), ids=FOLDERS)
def test_a_folder_that_is_not_ours_is_not_used(
    runs: Runs, cache: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(cache)
    before = sorted(cache.rglob("*"))
    plain = runs.uncached()
    assert (runs.made(), runs.known()) == (plain, UNKNOWN)
    assert sorted(cache.rglob("*")) == before
    with pytest.raises(SystemExit, match="2"):
        main(["clean"])
    assert sorted(cache.rglob("*")) == before
    assert (
        runs.told().err == f"fsdplint: {cache}: not removed: it has no CACHEDIR.TAG of fsdplint\n"
    )


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("refusing", ["mkdir", "open", "write", "replace", "scandir"])
def test_a_disk_that_refuses_is_not_told_of(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, cache: Path, refusing: str
) -> None:
    plain = runs.uncached()

    def refuse(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    real = os.open

    def unwritable(path: str, flags: int, *mode: int) -> int:
        if refusing == "open" and Path(path).is_relative_to(cache):
            refuse()
        descriptor = real(path, flags, *mode)
        if refusing == "write" and flags & os.O_CREAT:
            os.close(descriptor)
            return real(os.devnull, os.O_RDONLY)
        return descriptor

    with monkeypatch.context() as patch:
        if refusing in ("open", "write"):
            patch.setattr(folder.os, "open", unwritable)
        elif refusing != "scandir":
            patch.setattr(folder.os, refusing, refuse)
        else:
            patch.setattr(folder, "_entries", refuse)
        assert runs.made() == plain
    if refusing != "scandir":
        assert runs.known() == UNKNOWN
        assert list(cache.rglob("*.part")) == []
    assert runs.made() == plain
    assert runs.known() == plain


@pytest.mark.usefixtures("project")
def test_an_entry_of_another_user_is_not_believed(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = runs.made()
    monkeypatch.setattr(os, "geteuid", lambda: only().stat().st_uid + 1)
    assert runs.known() == UNKNOWN
    monkeypatch.undo()
    assert made.code == 1


@pytest.mark.usefixtures("project")
def test_only_the_user_can_read_it(runs: Runs, cache: Path) -> None:
    runs.made()
    assert oct(cache.stat().st_mode & 0o777) == "0o700"
    assert oct(only().stat().st_mode & 0o777) == "0o600"
    assert (cache / "CACHEDIR.TAG").read_text().startswith(TAG)
    assert (cache / ".gitignore").read_text() == "*\n"


def numbered() -> Iterator[str]:
    yield from (f"{number:016x}" for number in range(1000))


def test_old_entries_make_room(cache: Path) -> None:
    names = numbered()
    for age in range(205, 0, -1):
        name = next(names)
        folder.store(str(cache), name, b"data")
        os.utime(cache / f"{name}.run", (time.time() - age,) * 2)
    new, newer, (old_part, part) = (
        "d" * 16,
        "e" * 16,
        (f"{digit * 16}.run.1.part" for digit in "ab"),
    )
    folder.store(str(cache), new, b"data")
    left = sorted(path.stem for path in cache.glob("*.run"))
    assert left == [*(f"{number:016x}" for number in range(6, 205)), new]
    os.utime(cache / f"{new}.run", (time.time() - 31 * 86_400,) * 2)
    write(cache, {old_part: "", part: ""})
    os.utime(cache / old_part, (time.time() - 4_000,) * 2)
    folder.store(str(cache), newer, b"data")
    assert not (cache / f"{new}.run").exists()
    assert [path.name for path in cache.glob("*.part")] == [part]


def test_much_makes_room(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "_MAX_TOTAL", 25)
    a, b, c, d = (digit * 16 for digit in "abcd")
    for age, name in enumerate((c, b, a)):
        folder.store(str(cache), name, b"0123456789")
        os.utime(cache / f"{name}.run", (time.time() - 100 + age,) * 2)
    assert sorted(path.stem for path in cache.glob("*.run")) == [a, b]
    monkeypatch.setattr(folder, "_MAX_ENTRY", 5)
    folder.store(str(cache), d, b"0123456789")
    assert sorted(path.stem for path in cache.glob("*.run")) == [a, b]


def test_many_write_at_once(cache: Path) -> None:
    texts = [bytes([65 + n]) * 100_000 for n in range(10)]

    def work(text: bytes) -> set[bytes | None]:
        seen = set()
        for _ in range(20):
            folder.store(str(cache), "same", text)
            seen.add(folder.stored(str(cache), "same"))
        return seen

    with ThreadPoolExecutor(10) as pool:
        seen = set().union(*pool.map(work, texts))
    assert seen <= set(texts)
    assert sorted(path.name for path in cache.iterdir()) == [
        ".gitignore",
        "CACHEDIR.TAG",
        "same.run",
    ]


def test_two_processes_at_once(project: Path, runs: Runs) -> None:
    plain = runs.uncached()
    command = [sys.executable, "-m", "fsdplint", "check"]
    for _ in range(3):
        pipe = subprocess.PIPE
        processes = [subprocess.Popen(command, stdout=pipe, text=True) for _ in range(2)]
        told = [process.communicate()[0] for process in processes]
        assert told == [plain.out, plain.out]
    assert project.name == "project"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"FSDPLINT_CACHE_DIR": "/c"}, "/c"),
        ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/fsdplint"),
        ({"XDG_CACHE_HOME": "x", "HOME": "/h"}, "/h/.cache/fsdplint"),
        ({"FSDPLINT_CACHE_DIR": "", "HOME": "/h"}, "/h/.cache/fsdplint"),
    ],
)
def test_where_it_is(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("FSDPLINT_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert folder.place() == expected


def test_where_it_is_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FSDPLINT_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", "/h")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert folder.place() == "/h/Library/Caches/fsdplint"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", "/local")
    assert folder.place() == "/local/fsdplint"
    monkeypatch.delenv("LOCALAPPDATA")
    assert folder.place() == ""


def cleaned(runs: Runs) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["clean"])
    assert isinstance(ended.value.code, int)
    told = runs.told()
    return ended.value.code, told.out, told.err


@pytest.mark.usefixtures("project")
def test_clean_removes_it(runs: Runs, cache: Path) -> None:
    assert cleaned(runs) == (0, "No cache found.\n", "")
    runs.made()
    sizes = [path.stat().st_size for suffix in ("run", "ir") for path in cache.glob(f"*.{suffix}")]
    assert cleaned(runs) == (0, f"Removed {cache}: 2 files, {-(-sum(sizes) // 1000)} kB.\n", "")
    assert not cache.exists()
    assert cleaned(runs) == (0, "No cache found.\n", "")


@pytest.mark.usefixtures("project")
def test_clean_leaves_what_is_not_ours(runs: Runs, cache: Path) -> None:
    runs.made()
    write(cache, {"thesis.txt": "…"})
    kept = "it also contains thesis.txt, which fsdplint did not write"
    message = f"fsdplint: {cache}: not removed: {kept}\n"
    assert cleaned(runs) == (2, "", message)
    assert [path.name for path in cache.iterdir()] == ["thesis.txt"]


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("name", ["mine.run", "model.ir", "film.part", f"{'0' * 16}.run.part"])
def test_a_file_that_ends_as_ours_do_is_left(runs: Runs, cache: Path, name: str) -> None:
    runs.made()
    write(cache, {name: "…"})
    os.utime(cache / name, (0, 0))
    assert cleaned(runs)[::2] == (
        2,
        f"fsdplint: {cache}: not removed: it also contains {name}, which fsdplint did not write\n",
    )
    assert [path.name for path in cache.iterdir()] == [name]


@pytest.mark.usefixtures("project")
def test_a_folder_that_a_link_leads_to_is_emptied_and_both_stay(runs: Runs, cache: Path) -> None:
    elsewhere = cache.with_name("elsewhere")
    elsewhere.mkdir()
    cache.symlink_to(elsewhere)
    made = runs.made()
    assert runs.known() == made
    ran = cleaned(runs)
    assert (ran[0], ran[2]) == (0, "")
    assert ran[1].startswith(f"Emptied {elsewhere}, the target of {cache}: 2 files, ")
    assert (cache.is_symlink(), list(elsewhere.iterdir())) == (True, [])
    assert runs.made() == made
    assert runs.known() == made


@pytest.mark.usefixtures("project")
def test_what_a_link_in_the_folder_leads_to_stays(runs: Runs, cache: Path) -> None:
    elsewhere = cache.with_name("elsewhere")
    write(elsewhere, {"a.run": "…", "folder/b.run": "…"})
    runs.made()
    (cache / f"{'0' * 16}.run").symlink_to(elsewhere / "a.run")
    (cache / f"{'1' * 32}.ir").symlink_to(elsewhere / "folder")
    assert cleaned(runs)[1].startswith(f"Removed {cache}: 4 files, ")
    assert sorted(path.name for path in elsewhere.rglob("*")) == ["a.run", "b.run", "folder"]


@pytest.mark.usefixtures("project")
def test_a_linked_folder_of_others_is_left(runs: Runs, cache: Path) -> None:
    elsewhere = cache.with_name("elsewhere")
    write(elsewhere, {f"{'0' * 16}.run": "…"})
    cache.symlink_to(elsewhere)
    assert cleaned(runs) == (
        2,
        "",
        f"fsdplint: {cache}: not removed: it has no CACHEDIR.TAG of fsdplint\n",
    )
    assert len(list(elsewhere.iterdir())) == 1
