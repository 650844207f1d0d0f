"""An analysis that has seen earlier texts finds what a new one does."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchmarks.edits import differences
from fsdplint.engine.frontend import ir_cache

PROJECT = Path(__file__).parents[1] / "fixtures" / "projects" / "two_entries_one_wrong"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    copy = tmp_path / "project"
    shutil.copytree(PROJECT, copy)
    (copy / "pyproject.toml").touch()
    return copy


def test_what_earlier_edits_left_changes_no_result(project: Path) -> None:
    assert list(differences([project], edits=20, seed=0)) == []


def test_a_stale_analysis_differs(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ir_cache, "_key", lambda kind, text: f"{kind} {text[:40]}")
    assert list(differences([project], edits=20, seed=0)) != []
