"""What a symbolic link takes out of the project is checked, and never written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from test_check import tree
from test_cli import BAD, FIXED, IDLE, LINE, Ran, concise, run

BEYOND = (
    "a symbolic link leads {} outside the project, where fsdplint does not write; "
    "pass the real path instead"
)
UNFIXED = "fsdplint: {}:1:8: unused-suppression is not fixed: " + BEYOND + "\n"


@pytest.fixture(autouse=True)
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder beside the project that is checked."""
    for name in ("project", "outside"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "outside"


def file_link(outside: Path) -> str:
    Path("link.py").symlink_to(outside / "a.py")
    return "link.py"


def folder_link(outside: Path) -> str:
    Path("link").symlink_to(outside, target_is_directory=True)
    return "link/a.py"


def two_links(outside: Path) -> str:
    Path("first").symlink_to(outside, target_is_directory=True)
    Path("second.py").symlink_to("first/a.py")
    return "second.py"


def another_repository(outside: Path) -> str:
    (outside / ".git").mkdir()
    return folder_link(outside)


@pytest.mark.parametrize("link", [file_link, folder_link, another_repository])
@pytest.mark.parametrize("marker", ["", ".git", "pyproject.toml"])
@pytest.mark.parametrize("given", [True, False])
def test_a_file_beyond_a_link_is_found_and_not_fixed(
    outside: Path, link: Callable[[Path], str], marker: str, given: bool
) -> None:
    (outside / "a.py").write_text(IDLE)
    name = link(outside)
    if marker:
        Path(marker).touch()
    paths = [name] if given else []
    ran = concise("--fix", *paths)
    plain = LINE.replace(" [*]", "")
    assert (ran.code, ran.out.splitlines()[0]) == (1, f"{name}:1:8: {plain}")
    assert ran.err == UNFIXED.format(name, f"`{Path(name).name}`")
    assert concise("--diff", *paths).out == ""
    assert (outside / "a.py").read_text() == IDLE


def test_a_folder_that_is_given_elsewhere_is_a_project_too(
    outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree(outside, **{"tree/b.py": FIXED, "a.py": IDLE})
    (outside / "tree/link.py").symlink_to("../a.py")
    monkeypatch.chdir(outside.parent)
    assert concise("--fix", "outside/tree").code == 1
    monkeypatch.chdir(outside)
    assert concise("--fix", "tree").code == 1
    assert (outside / "a.py").read_text() == IDLE


def test_no_comment_is_written_beyond_a_link(outside: Path) -> None:
    tree(outside, **{"a.py": BAD})
    Path("link.py").symlink_to(outside / "a.py")
    Path("own.py").write_text(BAD)
    ran = concise("--add-ignore=why")
    assert ran.code == 1
    assert ran.err == f"fsdplint: link.py: {BEYOND.format('it')}\nSuppressed 2 findings.\n"
    assert (outside / "a.py").read_text() == BAD != Path("own.py").read_text()


@pytest.mark.usefixtures("outside")
def test_a_link_that_stays_in_the_project_is_followed() -> None:
    Path("pyproject.toml").touch()
    tree(Path(), **{"real/a.py": IDLE, "sub/b.py": FIXED})
    Path("sub/link.py").symlink_to("../real/a.py")
    assert concise("--fix", "sub").code == 0
    assert Path("real/a.py").read_text() == FIXED


def test_a_project_that_is_itself_linked_is_fixed(
    outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree(outside, **{".git/HEAD": "", "a.py": IDLE})
    outside.with_name("home").symlink_to(outside)
    monkeypatch.chdir("/")
    assert concise("--fix", outside.with_name("home")).code == 0
    assert (outside / "a.py").read_text() == FIXED


@pytest.mark.parametrize("link", [file_link, folder_link, two_links])
def test_no_report_is_written_beyond_a_link(outside: Path, link: Callable[[Path], str]) -> None:
    Path("own.py").write_text(FIXED)
    name = link(outside)
    message = f"fsdplint: {name}: {BEYOND.format('it')}\n"
    for option in (f"--output-file={name}", f"--output-format=json={name}"):
        assert run("check", "own.py", option) == Ran(2, "", message)
    assert run("baseline", "write", "own.py", f"--file={name}") == Ran(2, "", message)
    assert list(outside.iterdir()) == []


def test_a_report_goes_where_the_user_says(outside: Path) -> None:
    Path("own.py").write_text(IDLE)
    for file in (outside / "a.json", "../outside/b.json"):
        assert run("check", f"--output-format=json={file}").code == 1
    assert len({json.dumps(json.loads(file.read_text())) for file in outside.iterdir()}) == 1
    assert run("check", "--output-file=/dev/null").code == 1
    # A link that is no part of the project is the user's own.
    (outside / "link.json").symlink_to("a.json")
    assert run("check", f"--output-format=json={outside}/link.json").code == 1


def test_settings_name_no_baseline_to_write_outside(outside: Path) -> None:
    Path("own.py").write_text(IDLE)
    Path("fsdplint.toml").write_text('baseline = "../outside/known.json"\n')
    known = outside / "known.json"
    message = f"fsdplint: {known}: not written: it is outside the project; pass it with --file\n"
    for command in ("write", "prune"):
        assert run("baseline", command) == Ran(2, "", message)
    assert list(outside.iterdir()) == []
    assert run("baseline", "write", f"--file={known}").code == 0
    assert run("baseline", "prune", "--config=fsdplint.toml").code == 0
    assert concise().code == 0
