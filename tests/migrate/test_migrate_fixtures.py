"""Programs of the fixtures and examples with FSDP1: migrated completely or refused, and stable."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from plans import answered

from fsdplint.migrate.fsdp2 import FSDP2
from fsdplint.migrate.step import Kept

ROOT = Path(__file__).parents[2]
_NAME = "FullyShardedDataParallel"
_ALL = [
    *(ROOT / "examples").glob("*/*.py"),
    *(ROOT / "tests" / "fixtures" / "clean").glob("*.py"),
    *(ROOT / "tests" / "fixtures" / "scripts").glob("*/*.py"),
]
_PROGRAMS = sorted(path for path in _ALL if _NAME in path.read_text("utf-8"))
# All of them take a minute: a run of CI takes every fourth, and the examples.
_SAMPLE = [path for n, path in enumerate(_PROGRAMS) if n % 4 == 0 or "examples" in path.parts]


@pytest.mark.parametrize("path", _SAMPLE, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_migration_is_complete_or_says_why(path: Path, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    script = tmp_path / path.name
    shutil.copy(path, script)
    plan = answered(FSDP2, script)
    if not plan.is_complete:
        assert plan.of(Kept) or plan.new
        return
    assert bool(plan.entries) is bool(plan.files)
    for _, after in plan.files:
        script.write_bytes(after.encode())
    again = answered(FSDP2, script)
    assert (again.entries, again.files) == ((), ())


def test_a_finding_in_a_file_that_the_migration_does_not_read_is_told(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "tests/fixtures/projects/trainer_by_its_name", tmp_path / "project")
    (tmp_path / "project" / "pyproject.toml").touch()
    plan = answered(FSDP2, tmp_path / "project" / "train.py")
    places = [(Path(each.span.path).name, each.rule) for each in plan.new]
    assert places == [("wrf.py", "fsdp1-api-on-fsdp2-model")]
