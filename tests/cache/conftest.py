"""A cache of its own, and a project, for every test of the cache."""

from __future__ import annotations

from pathlib import Path

import pytest
from kept import HELPERS, SCRIPT, Runs, write

from fsdplint.files import disk


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("FSDPLINT_CACHE_DIR", str(folder))
    monkeypatch.delenv("FSDPLINT_NO_CACHE")
    return folder


@pytest.fixture
def runs(capsys: pytest.CaptureFixture[str]) -> Runs:
    return Runs(capsys)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    toml = '[tool.fsdplint]\nselect = ["ALL"]\n'
    write(folder, {"train.py": SCRIPT, "helpers.py": HELPERS, "pyproject.toml": toml})
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(params=["settled", "fresh"])
def times(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether files count as older than a run, so that `stat` tells whether they changed."""
    if request.param == "settled":
        monkeypatch.setattr(disk, "_STEP", -(10**18))
    return str(request.param)
