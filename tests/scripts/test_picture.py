"""The README's picture shows what fsdplint prints."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("picture", ROOT / "scripts" / "picture.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


picture = load()


def test_it_is_current() -> None:
    assert picture.main(["--check"]) == 0


def test_an_old_one_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "finding.svg"
    old.write_text(picture.PICTURE.read_text("utf-8").replace("AdamW", "SGD", 1), "utf-8")
    monkeypatch.setattr(picture, "PICTURE", old)
    assert picture.main(["--check"]) == 1


def test_it_loads_nothing() -> None:
    assert "url(http" not in picture.PICTURE.read_text("utf-8")
