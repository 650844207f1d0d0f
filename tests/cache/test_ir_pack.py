"""The IR of a project: a run after a change lowers what changed, and finds what it would have."""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from kept import HELPERS, SCRIPT, Runs, entries, write
from test_folder import SPOILT

from fsdplint.cache import ir_pack, recording
from fsdplint.cache.folder import LOWERED, place, stored
from fsdplint.cli.main import main
from fsdplint.engine.frontend import lower_statements
from fsdplint.engine.frontend.ir_cache import IRCache

LONG = f"""{SCRIPT}
def unused():
    first = "{"a line that is long enough for the function to wait " * 4}"
    return first

print(unused())
"""


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was parsed since it was last cleared."""
    texts: list[str] = []
    parse = lower_statements.parse

    def noted(text: str) -> object:
        texts.append(text)
        return parse(text)

    monkeypatch.setattr(lower_statements, "parse", noted)
    return texts


def packs() -> list[Path]:
    return sorted(Path(place()).glob("*.ir"))


def only() -> Path:
    (found,) = packs()
    return found


def test_only_what_changed_is_parsed(project: Path, runs: Runs, parsed: list[str]) -> None:
    write(project, {"train.py": LONG})
    runs.made()
    assert len(parsed) == 3
    parsed.clear()
    changed = HELPERS.replace("8, 8", "9, 9")
    write(project, {"helpers.py": changed})
    made = runs.made()
    assert parsed == [changed]
    assert made == runs.uncached()
    parsed.clear()
    moved = f"import os\n{LONG}"
    write(project, {"train.py": moved})
    made = runs.made()
    assert [text[:9] for text in parsed] == ["import os"]  # and no function
    assert made == runs.uncached()


@pytest.mark.usefixtures("runs")
def test_fixing_parses_what_no_fix_changes_once_and_leaves_nothing(
    project: Path, parsed: list[str]
) -> None:
    write(project, {"train.py": LONG})
    before = sorted(project.parent.rglob("*"))
    with pytest.raises(SystemExit):
        main(["check", "--isolated", "--fix", "--unsafe-fixes", "."])
    assert "loss = model(batch)" in (project / "train.py").read_text()
    assert len(parsed) == len(set(parsed))
    assert sorted(project.parent.rglob("*")) == before


def test_nothing_is_parsed_where_another_path_is_checked(
    project: Path, runs: Runs, parsed: list[str]
) -> None:
    runs.made()
    before = only().read_bytes()
    parsed.clear()
    assert runs.made("train.py") == runs.uncached("train.py")
    made = [*parsed]
    assert made == [SCRIPT, HELPERS]  # of the run without a cache
    assert (only().read_bytes(), project.name) == (before, "project")


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
def test_a_spoilt_pack_is_written_again(
    runs: Runs, parsed: list[str], spoil: Callable[[Path], None]
) -> None:
    made = runs.made()
    spoil(only())
    for path in entries():
        path.unlink()
    parsed.clear()
    assert runs.made() == made
    assert parsed == [SCRIPT, HELPERS]
    parsed.clear()
    for path in entries():
        path.unlink()
    assert runs.made() == made
    assert parsed == []


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize("option", ["--fix", "--diff", "--no-cache", "--add-ignore=reason"])
def test_what_is_written_into_files_rests_on_no_pack(
    runs: Runs, parsed: list[str], option: str
) -> None:
    runs.made()
    before = only().read_bytes()
    parsed.clear()
    runs.made(option)
    assert parsed[:2] == [SCRIPT, HELPERS]
    assert only().read_bytes() == before


@pytest.mark.usefixtures("project")
def test_what_other_code_lowered_is_not_used(
    runs: Runs, parsed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs.made()
    parsed.clear()
    monkeypatch.setattr(ir_pack, "_maker", lambda: "the code of another release")
    runs.made("train.py")
    assert parsed == [SCRIPT, HELPERS]
    assert len(packs()) == 2


@pytest.mark.parametrize("changed", ["files/invalid.py", "engine/frontend/lower_expressions.py"])
def test_the_code_is_known_by_what_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    package = Path(ir_pack.fsdplint.__file__).parent
    copy = tmp_path / "fsdplint"
    for folder in ("files", "engine", "engine/frontend", "engine/project"):
        texts = {path.name: path.read_text() for path in (package / folder).glob("*.py")}
        write(copy / folder, texts)
    same = ir_pack._maker()
    monkeypatch.setattr(ir_pack.fsdplint, "__file__", str(copy / "__init__.py"))
    assert ir_pack._maker() == same
    write(copy, {changed: (copy / changed).read_text() + "\n"})
    assert ir_pack._maker() != same


@pytest.mark.usefixtures("project")
def test_a_run_is_known_by_the_code_that_lowered_what_it_used(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs.made()
    name = "fsdplint.engine.frontend.lower_expressions"
    path = str(Path(lower_statements.__file__).with_name("lower_expressions.py"))
    monkeypatch.delitem(sys.modules, name)
    notes = recording._notes_on_code(2**62)
    assert notes is not None
    assert path in [note[1] for note in notes]


def test_rows_that_are_not_used_stay_as_long_as_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = IRCache({"a": "1" * 10, "b": "2" * 10})
    kept.used = {"c": "3" * 10, "b": "2" * 10}
    assert ir_pack.unpacked(ir_pack.packed(kept)) == {"c": "3" * 10, "b": "2" * 10, "a": "1" * 10}
    monkeypatch.setattr(ir_pack, "_MAX_ROWS", 25)
    assert ir_pack.unpacked(ir_pack.packed(kept)) == {"c": "3" * 10, "b": "2" * 10}


@pytest.mark.parametrize("body", [b"no stream", zlib.compress("é".encode())])
def test_bytes_that_are_no_rows(body: bytes) -> None:
    assert ir_pack.unpacked(ir_pack._HEAD + b"%08x" % zlib.crc32(body) + body) == {}


@pytest.mark.usefixtures("project")
def test_it_goes_with_the_cache(runs: Runs, cache: Path) -> None:
    runs.made()
    assert oct(only().stat().st_mode & 0o777) == "0o600"
    assert stored(str(cache), only().stem, LOWERED) == only().read_bytes()
    with pytest.raises(SystemExit, match="0"):
        main(["clean"])
    assert not os.path.lexists(cache)
