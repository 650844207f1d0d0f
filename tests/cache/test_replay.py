"""A run that is known ends as it would if it were made, and one that would not is not known."""

from __future__ import annotations

import os
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from kept import HELPERS, SCRIPT, UNKNOWN, Runs, entries, write
from limits import limit

from fsdplint.cache import replay as replaying
from fsdplint.cache.report_entry import decoded
from fsdplint.files import disk
from fsdplint.files.file import absolute
from fsdplint.report import REPORTS

ROOT = Path(__file__).parent.parent.parent
PROJECTS = sorted((ROOT / "tests" / "fixtures" / "projects").iterdir())


@pytest.mark.usefixtures("times")
@pytest.mark.parametrize("format_", REPORTS)
def test_a_known_run_ends_as_one_that_is_made(project: Path, runs: Runs, format_: str) -> None:
    arguments = (".", "--output-format", format_)
    plain = runs.uncached(*arguments)
    assert plain.code == 1
    assert runs.known(*arguments) == UNKNOWN
    assert runs.made(*arguments) == plain
    assert runs.known(*arguments) == plain
    assert runs.known(*arguments) == plain
    assert [path.parent.name for path in entries()] == ["cache"]
    assert project.name == "project"


@pytest.mark.parametrize("source", PROJECTS, ids=lambda path: path.name)
def test_projects_end_alike(
    tmp_path: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch, source: Path
) -> None:
    monkeypatch.chdir(shutil.copytree(source, tmp_path / "copy"))
    plain = runs.uncached("--statistics")
    assert (runs.made("--statistics"), runs.known("--statistics")) == (plain, plain)


def test_an_early_stop_is_known_too(
    project: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit(monkeypatch, path_steps=1)
    (project / "helpers.py").write_text("import math\n")
    for strict, code in (((), 0), (("--strict",), 2)):
        assert runs.known("train.py", *strict) == UNKNOWN
        made = runs.made("train.py", *strict)
        assert made.code == code
        assert made.err == (
            "fsdplint: analysis of `train.py` stopped early (one path exceeds the step limit): "
            "findings may be missing\n"
        )
        assert runs.known("train.py", *strict) == made
    with (project / "pyproject.toml").open("a") as settings:
        settings.write("strict = true\n")
    assert runs.known("train.py") == UNKNOWN
    assert runs.made("train.py").code == 2


def test_no_findings_and_failures_are_known_too(project: Path, runs: Runs) -> None:
    (project / "train.py").write_bytes(b"name = '\xff'\n")
    (project / "helpers.py").write_text("import math\n")
    made = runs.made()
    assert made.code == 2
    assert made.err == "fsdplint: train.py: line 1 is not utf-8 (byte 0xff): invalid start byte\n"
    assert runs.known() == made
    (project / "train.py").unlink()
    assert runs.known() == UNKNOWN
    made = runs.made()
    assert made.code == 0
    assert runs.known() == made


def test_a_baseline_is_looked_at_again(project: Path, runs: Runs) -> None:
    (project / "known.json").write_text('{"version": 1, "findings": []}\n')
    arguments = (".", "--baseline", "known.json")
    made = runs.made(*arguments)
    assert (made.code, runs.known(*arguments)) == (1, made)
    gone = '{"path": "train.py", "rule": "direct-forward", "code": "x"}'
    (project / "known.json").write_text(f'{{"version": 1, "findings": [{gone}]}}\n')
    assert runs.known(*arguments) == UNKNOWN
    made = runs.made(*arguments)
    assert made.err.startswith("fsdplint: known.json: 1 finding no longer exists")
    assert runs.known(*arguments) == made


def changed(name: str, text: str) -> Callable[[Path], object]:
    return lambda project: write(project, {name: text})


def same_size(project: Path) -> None:
    text = SCRIPT.replace("loss = model.forward", "loss = model.backward"[:20])
    assert len(text) == len(SCRIPT) and text != SCRIPT
    (project / "train.py").write_text(text)


CHANGES: dict[str, Callable[[Path], object]] = {
    "a checked file": changed("train.py", SCRIPT.replace("forward", "encode")),
    "a checked file of the same size": same_size,
    "a helper": changed("helpers.py", HELPERS + "\n\nx = 1\n"),
    "a helper that is gone": lambda project: (project / "helpers.py").unlink(),
    "a package in the place of a helper": lambda project: (
        (project / "helpers.py").rename(project / "other.py"),
        write(project, {"helpers/__init__.py": HELPERS}),
    ),
    "a new file": changed("more.py", "import torch\n"),
    "a new file in a new folder": changed("more/again.py", "import torch\n"),
    "settings": changed("pyproject.toml", '[tool.fsdplint]\nselect = ["FSD1"]\n'),
    "settings that come first": changed("fsdplint.toml", 'select = ["FSD1"]\n'),
    "target-torch": changed("pyproject.toml", '[tool.fsdplint]\ntarget-torch = ">=2.6"\n'),
    "what git ignores": lambda project: (
        (project / ".git").mkdir(),
        write(project, {".gitignore": "train.py\n"}),
    ),
    "a folder in the place of a file": lambda project: (
        (project / "train.py").unlink(),
        (project / "train.py").mkdir(),
    ),
    "a pipe in the place of a file": lambda project: (
        (project / "helpers.py").unlink(),
        os.mkfifo(project / "helpers.py"),
    ),
    "a link in the place of a file": lambda project: (
        (project / "helpers.py").rename(project / "helpers.txt"),
        (project / "helpers.py").symlink_to("train.py"),
    ),
    "the whole project": lambda project: shutil.rmtree(project),
}


@pytest.mark.usefixtures("times")
@pytest.mark.parametrize("arguments", [(".",), ("train.py",)], ids=["all", "one"])
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_changed_is_seen(
    project: Path, runs: Runs, arguments: tuple[str, ...], change: Callable[[Path], object]
) -> None:
    made = runs.made(*arguments)
    assert runs.known(*arguments) == made
    change(project)
    assert runs.known(*arguments) == UNKNOWN


OUTSIDE = {
    "a module that an import looked for": ("pkg/model.py", "import torch\n"),
    "a module that comes before another": ("pkg/scripts/helpers.py", HELPERS),
    "a module that is read for its imports": ("pkg/helpers.py", HELPERS + "\n\nx = 1\n"),
}


@pytest.mark.usefixtures("times")
@pytest.mark.parametrize(("name", "text"), OUTSIDE.values(), ids=OUTSIDE)
def test_files_that_were_not_asked_for_are_seen(
    project: Path, runs: Runs, name: str, text: str
) -> None:
    script = SCRIPT + "\nfrom pkg.model import other\n"
    write(project, {"pkg/scripts/run.py": script, "pkg/helpers.py": HELPERS})
    (project / "train.py").unlink()
    folder = "pkg/scripts"
    made = runs.made(folder)
    assert (made.code, runs.known(folder)) == (1, made)
    write(project, {name: text})
    assert runs.known(folder) == UNKNOWN
    assert runs.made(folder) == runs.uncached(folder)


@pytest.mark.usefixtures("times")
def test_where_a_link_leads_is_seen(project: Path, runs: Runs) -> None:
    write(project, {"one/train.py": SCRIPT, "two/train.py": SCRIPT})
    (project / "link").symlink_to("one")
    made = runs.made("one", "link")
    assert runs.known("one", "link") == made
    (project / "link").unlink()
    (project / "link").symlink_to("two")  # whose content is the same, but not seen by now
    assert runs.known("one", "link") == UNKNOWN
    assert runs.made("one", "link").out.count("FSD302") == made.out.count("FSD302") + 1


def later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "__version__", "99.0")


CIRCUMSTANCES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "another version": later,
    "another Python": lambda patch: patch.setattr(sys, "version", "3.99"),
    "colours": lambda patch: patch.setenv("FORCE_COLOR", "1"),
    "colours as other tools": lambda patch: patch.setenv("CLICOLOR_FORCE", "1"),
    "another format": lambda patch: patch.setenv("FSDPLINT_OUTPUT_FORMAT", "json"),
    "links": lambda patch: patch.setenv("FORCE_HYPERLINK", "1"),
    "another terminal": lambda patch: patch.setenv("TERM_PROGRAM", "WezTerm"),
    "other modules": lambda patch: patch.setenv("PYTHONPATH", "elsewhere"),
    "another folder": lambda patch: patch.chdir(".."),
    "another cache": lambda patch: patch.setenv("FSDPLINT_CACHE_DIR", "elsewhere"),
    "no cache": lambda patch: patch.setenv("FSDPLINT_NO_CACHE", "1"),
}


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("change", CIRCUMSTANCES.values(), ids=CIRCUMSTANCES)
def test_what_is_different_is_seen(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, change: Callable[[pytest.MonkeyPatch], None]
) -> None:
    path = str(Path.cwd())
    made = runs.made(path)
    assert runs.known(path) == made
    change(monkeypatch)
    assert runs.known(path) == UNKNOWN


@pytest.mark.usefixtures("project")
def test_other_arguments_are_other_runs(runs: Runs) -> None:
    made = runs.made(".")
    for arguments in ((), ("./",), (".", "--preview"), (".", "--no-cache"), (".", "--select", "1")):
        assert runs.known(*arguments) == UNKNOWN
    assert runs.known(".") == made


@pytest.mark.usefixtures("project")
def test_our_own_code_is_looked_at(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "_STEP", -(10**18))
    module = ModuleType("fsdplint.edited")
    module.__file__ = str(tmp_path / "edited.py")
    monkeypatch.setitem(sys.modules, "fsdplint.edited", module)
    (tmp_path / "edited.py").write_text("rule = 1\n")
    made = runs.made()
    assert runs.known() == made
    (tmp_path / "edited.py").write_text("rule = 2\n")
    assert runs.known() == UNKNOWN


@pytest.mark.usefixtures("project")
def test_code_that_was_just_written_keeps_nothing(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("fsdplint.edited")
    module.__file__ = str(tmp_path / "edited.py")
    monkeypatch.setitem(sys.modules, "fsdplint.edited", module)
    (tmp_path / "edited.py").write_text("rule = 1\n")  # or so: the import may have seen another
    runs.made()
    assert (runs.known(), entries()) == (UNKNOWN, [])


@pytest.mark.usefixtures("project")
def test_releases_of_what_we_import_are_looked_at(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "site-packages"
    write(installed, {"tomli/__init__.py": "", "tomli-2.0.dist-info/METADATA": ""})
    module = ModuleType("tomli")
    module.__file__ = str(installed / "tomli" / "__init__.py")
    monkeypatch.setitem(sys.modules, "tomli", module)
    made = runs.made()
    assert runs.known() == made
    (installed / "tomli-2.0.dist-info").rename(installed / "tomli-2.1.dist-info")
    assert runs.known() == UNKNOWN


@pytest.mark.usefixtures("times")
def test_what_changes_nothing_leaves_a_run_known(project: Path, runs: Runs) -> None:
    made = runs.made()
    os.utime(project / "train.py", (0, 0))
    write(project, {"train.log": "…", "__pycache__/train.pyc": "…", ".git/index": "…"})
    (project / ".git" / "index").unlink()
    (project / ".git").rmdir()
    (project / "helpers.py").unlink()
    (project / "helpers.py").write_text(HELPERS)
    assert runs.known() == made


def test_times_are_brought_up_to_date(
    project: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = runs.made()
    path = str(project / "train.py")

    def signature() -> str:
        (entry,) = entries()
        notes = decoded(entry.read_bytes()).notes
        return next(n[2] for n in notes if n[0] == disk.CONTENT and n[1] == path)

    assert signature() == ""
    monkeypatch.setattr(disk, "_STEP", -(10**18))
    assert runs.known() == made
    assert signature() != ""
    monkeypatch.setattr(disk, "digest", None)  # nothing is read
    assert runs.known() == made


@pytest.mark.usefixtures("times")
def test_any_edits_at_all(tmp_path: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small edits in a row, of which some change nothing: what is known is what would be made."""
    random_ = random.Random(7)
    folder = tmp_path / "edited"
    names = ["a.py", "helpers.py", "pkg/__init__.py", "pkg/a.py", "pkg/helpers.py", "src/pkg/b.py"]
    texts = [SCRIPT, HELPERS, "from pkg import b\n", SCRIPT.replace("helpers", "pkg.helpers"), "("]
    others = {
        "fsdplint.toml": ['select = ["FSD3"]\n', "", 'exclude = ["pkg"]\n'],
        ".gitignore": ["pkg/\n", "a.py\n", ""],
    }
    write(folder, {"a.py": SCRIPT, ".git/HEAD": ""})
    monkeypatch.chdir(folder)
    hits = 0
    for _ in range(40):
        name = random_.choice([*names, *others])
        path = folder / name
        if path.exists() and random_.random() < 0.4:
            path.unlink()
        else:
            write(folder, {name: random_.choice(others.get(name, texts))})
        arguments = random_.choice([(".",), ("pkg",), ("a.py",)])
        known, made = runs.known(*arguments), runs.made(*arguments)
        hits += known != UNKNOWN
        assert known in (made, UNKNOWN)
        assert made == runs.uncached(*arguments)
        assert runs.known(*arguments) in (made, UNKNOWN)
    assert hits > 0


def test_all_that_is_looked_at_is_noted(
    project: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked of the system's own functions, so that no look goes past the notes."""
    looked: set[str] = set()

    def watched(real: Callable[..., object]) -> Callable[..., object]:
        def seen(path: object = ".", *arguments: object, **options: object) -> object:
            if isinstance(path, (str, Path)):
                looked.add(absolute(path))
            return real(path, *arguments, **options)

        return seen

    write(project, {"pkg/__init__.py": "", "pkg/a.py": SCRIPT, "pkg/venv/pyvenv.cfg": ""})
    for name in ("stat", "lstat", "scandir", "listdir", "open"):
        monkeypatch.setattr(os, name, watched(getattr(os, name)))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", None)
        patch.setattr(Path, "read_bytes", None)
        patch.setattr(Path, "read_text", None)
        patch.setattr("builtins.open", watched(open))
        runs.made()
    (entry,) = entries()
    noted = {absolute(note[1]) for note in decoded(entry.read_bytes()).notes}
    within = {path for path in looked if Path(path).is_relative_to(project)}
    assert len(within) > 10
    assert within - noted == set()
