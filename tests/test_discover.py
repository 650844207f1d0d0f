from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from fsdplint.files.discover import Patterns, discover, project_root, searched


def tree(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def names(root: Path, *paths: Path, exclude: tuple[Patterns, ...] = ()) -> list[str]:
    found = discover(paths or (root,), exclude)
    assert found.failures == ()
    return [path.relative_to(root).as_posix() for path in found.files]


def test_sources_and_notebooks_in_order(tmp_path: Path) -> None:
    tree(tmp_path, **{"b.py": "", "a/z.pyi": "", "a/y.ipynb": "", "a.txt": "", "a/x.pyc": ""})
    assert names(tmp_path) == ["a/y.ipynb", "a/z.pyi", "b.py"]


def test_given_files_are_taken_whatever_they_are(tmp_path: Path) -> None:
    tree(tmp_path, **{"script": "", "build/a.py": "", ".gitignore": "*.py\n", ".git/HEAD": ""})
    assert names(tmp_path) == []
    given = (tmp_path / "script", tmp_path / "build/a.py")
    assert names(tmp_path, *given) == ["build/a.py", "script"]


def test_a_missing_path_is_a_failure_that_suggests_the_nearest(tmp_path: Path) -> None:
    tree(tmp_path, **{"train.py": "", "other.py": ""})
    found = discover([tmp_path / "trian.py", tmp_path / "other.py", tmp_path / "no/zzz"])
    assert [path.name for path in found.files] == ["other.py"]
    assert [failure.reason for failure in found.failures] == [
        "no such file or folder; did you mean 'train.py'?",
        "no such file or folder",
    ]


@pytest.mark.parametrize(
    "directory", [".git", ".venv", "venv", "node_modules", "__pycache__", "build", "dist", ".eggs"]
)
def test_directories_that_hold_no_source_are_skipped(tmp_path: Path, directory: str) -> None:
    tree(tmp_path, **{f"{directory}/a.py": "", "b.py": ""})
    assert names(tmp_path) == ["b.py"]


def test_virtual_environments_are_known_by_their_marker(tmp_path: Path) -> None:
    inside = "lib/site-packages/a.py"
    tree(tmp_path, **{f"env/{inside}": "", "env/pyvenv.cfg": "", inside: ""})
    assert names(tmp_path) == [inside]
    assert names(tmp_path, tmp_path / "env") == [f"env/{inside}"]


def test_nested_gitignores_the_deepest_decides(tmp_path: Path) -> None:
    tree(
        tmp_path,
        **{
            ".git/info/exclude": "secret.py\n",
            ".gitignore": "*_gen.py\n/out/\n!keep_gen.py\n",
            "a_gen.py": "",
            "keep_gen.py": "",
            "secret.py": "",
            "out/x.py": "",
            "pkg/out/x.py": "",
            "pkg/.gitignore": "!a_gen.py\nlocal.py\n",
            "pkg/a_gen.py": "",
            "pkg/b_gen.py": "",
            "pkg/local.py": "",
            "pkg/deep/local.py": "",
            "local.py": "",
        },
    )
    expected = ["keep_gen.py", "local.py", "pkg/a_gen.py", "pkg/out/x.py"]
    assert names(tmp_path) == expected
    assert names(tmp_path, tmp_path / "pkg") == ["pkg/a_gen.py", "pkg/out/x.py"]


def test_a_given_directory_is_walked_though_git_ignores_it(tmp_path: Path) -> None:
    tree(tmp_path, **{".git/HEAD": "", ".gitignore": "out/\n", "out/a.py": "", "b.py": ""})
    assert names(tmp_path) == ["b.py"]
    assert names(tmp_path, tmp_path / "out") == ["out/a.py"]


def test_a_broken_gitignore_line_spoils_no_other(tmp_path: Path) -> None:
    tree(tmp_path, **{".gitignore": "!\n\\\n***\n!!\na.py\n", "a.py": "", "b.py": ""})
    assert "a.py" not in names(tmp_path)


def test_exclude_patterns_of_the_settings(tmp_path: Path) -> None:
    tree(tmp_path, **{"a.py": "", "third_party/a.py": "", "pkg/third_party/a.py": ""})
    exclude = Patterns.of(os.fspath(tmp_path), ["/third_party"])
    assert names(tmp_path, exclude=(exclude,)) == ["a.py", "pkg/third_party/a.py"]


def test_link_loops_end_and_each_file_counts_once(tmp_path: Path) -> None:
    tree(tmp_path, **{"pkg/a.py": "", "pkg/b.py": ""})
    (tmp_path / "pkg/loop").symlink_to(tmp_path, target_is_directory=True)
    (tmp_path / "again").symlink_to(tmp_path / "pkg", target_is_directory=True)
    (tmp_path / "alias.py").symlink_to(tmp_path / "pkg/a.py")
    (tmp_path / "self").symlink_to(tmp_path / "self")
    assert names(tmp_path) == ["pkg/a.py", "pkg/b.py"]
    assert names(tmp_path, tmp_path, tmp_path / "pkg/a.py", tmp_path) == ["pkg/a.py", "pkg/b.py"]


def test_a_linked_directory_outside_is_entered(tmp_path: Path) -> None:
    tree(tmp_path, **{"outside/a.py": "", "inside/b.py": ""})
    (tmp_path / "inside/link").symlink_to(tmp_path / "outside", target_is_directory=True)
    assert names(tmp_path, tmp_path / "inside") == ["inside/b.py", "inside/link/a.py"]


def test_what_is_no_file_is_skipped_with_a_reason(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket.py"))
    (tmp_path / "null.py").symlink_to(os.devnull)
    (tmp_path / ".#lock.py").symlink_to("user@host.1:2")
    (tmp_path / "dir.py").mkdir()
    found = discover([tmp_path])
    assert (found.files, found.failures) == ((), ())
    assert {(Path(e.path).name, e.reason) for e in found.skipped} == {
        ("pipe.py", "a named pipe, not a regular file"),
        ("socket.py", "a socket, not a regular file"),
        ("null.py", "a device, not a regular file"),
    }


def test_a_pipe_for_a_gitignore_is_not_waited_at(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".gitignore")
    tree(tmp_path, **{"a.py": ""})
    assert names(tmp_path) == ["a.py"]


def test_a_broken_link_is_left_for_the_reader_to_report(tmp_path: Path) -> None:
    (tmp_path / "a.py").symlink_to(tmp_path / "gone")
    assert names(tmp_path) == ["a.py"]


def test_an_unreadable_directory_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree(tmp_path, **{"a.py": "", "locked/b.py": ""})
    scandir = os.scandir

    def refuse(path: str) -> object:
        if path.endswith("locked"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    found = discover([tmp_path])
    assert [path.name for path in found.files] == ["a.py"]
    assert [(f.path, f.reason) for f in found.failures] == [
        (os.fspath(tmp_path / "locked"), "Permission denied")
    ]


@pytest.mark.parametrize("marker", ["pyproject.toml", "setup.py", "setup.cfg", "fsdplint.toml"])
def test_the_nearest_marker_is_the_project_root(tmp_path: Path, marker: str) -> None:
    tree(tmp_path, **{".git/HEAD": "", f"sub/{marker}": "", "sub/pkg/a.py": "", "b.py": ""})
    assert project_root(tmp_path / "sub/pkg/a.py") == tmp_path / "sub"
    assert project_root(tmp_path / "sub") == tmp_path / "sub"
    assert project_root(tmp_path / "b.py") == tmp_path


def test_what_a_search_of_the_current_folder_leaves_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "build/repository"  # what the folders above are called says nothing
    given = ("a.py", "x/y/b.py", "x/c.py", "x/dist/d.py", "build/e.py", "tracked/f.py", "../g.py")
    tree(here, **dict.fromkeys(given, ""), **{".gitignore": "tracked/\n", "build.py": ""})
    monkeypatch.chdir(here)
    patterns = Patterns.of(str(here), ["/x/y/", "!/x/y/b.py", "h.py"])
    kept = ("a.py", "x/c.py", "tracked/f.py", "../g.py", "build.py", ".", "..")
    assert searched((*given, "build.py", ".", "..", "build", "h.py"), [patterns]) == kept
    absolute = [str(here / path) for path in given[:3]]
    assert searched(absolute, [patterns]) == (absolute[0], absolute[2])
    assert searched(given[:2], [Patterns.of(str(tmp_path), ["/build/repository/a.py"])]) == (
        "x/y/b.py",
    )


@pytest.mark.parametrize("line", ["a*" * 30 + "b", "*" * 60 + "b", "[ab]*" * 30 + "c", "?*" * 20])
def test_many_stars_take_no_time(tmp_path: Path, line: str) -> None:
    name = f"{'a' * 200}.py"
    (tmp_path / name).touch()
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text(f"{line}\n")
    expected = [] if line.startswith("?") else [name]
    assert [path.name for path in discover([tmp_path]).files] == expected


@pytest.mark.parametrize(
    ("line", "name", "expected"),
    [
        ("a*b*c.py", "abxbc.py", True),
        ("a*b*c.py", "acxb.py", False),
        ("*.*.py", "a.b.c.py", True),
        ("a**b*.py", "aaxb.py", True),
        ("*[ab]*[!a].py", "xac.py", True),
        (r"*\**.py", "a*b.py", True),
        (r"*\**.py", "ab.py", False),
        ("?*?*.py", "a.py", False),
    ],
)
def test_stars_match_what_git_matches(tmp_path: Path, line: str, name: str, expected: bool) -> None:
    patterns = Patterns.of(str(tmp_path), [line])
    assert bool(patterns.decide(str(tmp_path / name), False)) == expected
