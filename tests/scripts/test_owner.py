"""The repository's address is the same wherever it is given, and so is the version."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from fsdplint import __version__

ROOT = Path(__file__).parents[2]
HERE = Path(__file__)


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("owner", ROOT / "scripts" / "owner.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


owner = load()


def test_every_address_has_one_owner() -> None:
    found = {
        path.relative_to(ROOT).as_posix(): owners
        for path in owner.texts(ROOT)
        if path != HERE and (owners := owner.owners(path.read_text("utf-8")))
    }
    assert len(set.union(*found.values())) == 1, found
    expected = {"pyproject.toml", "mkdocs.yml", "README.md", "src/fsdplint/urls.py", "CITATION.cff"}
    assert expected <= found.keys()


@pytest.mark.parametrize(
    ("text", "renamed"),
    [
        ("https://github.com/OWNER/fsdplint/issues", "https://github.com/me-2/fsdplint/issues"),
        ("- uses: OWNER/fsdplint@main", "- uses: me-2/fsdplint@main"),
        ("https://OWNER.github.io/fsdplint/", "https://me-2.github.io/fsdplint/"),
        ("https://github.com/a-b/fsdplint\n", "https://github.com/me-2/fsdplint\n"),
        ("src/fsdplint/urls.py", "src/fsdplint/urls.py"),
        ("https://github.com/pytorch/pytorch", "https://github.com/pytorch/pytorch"),
        ("https://pypi.org/project/fsdplint/", "https://pypi.org/project/fsdplint/"),
        ("uses: actions/checkout@v6", "uses: actions/checkout@v6"),
    ],
)
def test_an_address_is_rewritten_and_nothing_else(text: str, renamed: str) -> None:
    assert owner.renamed(text, "me-2") == renamed


def test_the_name_is_written_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / name)
    for command in (["init", "-q"], ["add", "."]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    monkeypatch.setattr(owner, "ROOT", tmp_path)
    assert owner.main(["somebody"]) == 0
    assert "https://github.com/somebody/fsdplint" in (tmp_path / "pyproject.toml").read_text()
    assert (tmp_path / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    assert owner.main(["no such name"]) == 2


@pytest.mark.parametrize(
    ("file", "pattern"),
    [
        ("CITATION.cff", r"^version: (.*)$"),
        ("README.md", r"^  rev: v(.*)$"),
        ("docs/pre-commit.md", r"^  rev: v(.*)$"),
    ],
)
def test_the_version_is_that_of_the_package(file: str, pattern: str) -> None:
    found = re.findall(pattern, (ROOT / file).read_text("utf-8"), re.MULTILINE)
    assert found == [__version__]
