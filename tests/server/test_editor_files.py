"""The files of `editors/` are what the page on editors shows."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from fsdplint import __version__
from fsdplint.server.editor_settings import EditorSettings, read

ROOT = Path(__file__).parents[2]
EDITORS = ROOT / "editors"
PAGE = (ROOT / "docs" / "editors.md").read_text("utf-8")


def block(heading: str, language: str) -> str:
    part = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    (found,) = re.findall(rf"```{language}\n(.*?)```", part, re.DOTALL)
    assert isinstance(found, str)
    return found


@pytest.mark.parametrize(
    ("heading", "language", "file"),
    [
        ("Neovim", "lua", "neovim/fsdplint.lua"),
        ("Helix", "toml", "helix/languages.toml"),
        ("Emacs", "lisp", "emacs/fsdplint.el"),
    ],
)
def test_the_page_shows_the_file(heading: str, language: str, file: str) -> None:
    assert block(heading, language) in (EDITORS / file).read_text("utf-8")


@pytest.mark.parametrize(
    ("heading", "file"),
    [("Zed", "zed/settings.json"), ("JupyterLab", "jupyterlab/jupyter_server_config.json")],
)
def test_the_page_shows_the_settings(heading: str, file: str) -> None:
    shown = json.loads(block(heading, "json"))
    assert shown == json.loads((EDITORS / file).read_text("utf-8"))


def test_every_setting_is_on_the_page_and_in_the_extension() -> None:
    package = json.loads((EDITORS / "vscode" / "package.json").read_text("utf-8"))
    settings = package["contributes"]["configuration"]["properties"]
    keys = {name.removeprefix("fsdplint."): value["default"] for name, value in settings.items()}
    table = PAGE.split("\n## Settings\n")[1].split("\n## ")[0]
    named = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (.*?) \|", table, re.MULTILINE))))
    assert keys.keys() - {"path"} == named
    assert read(keys) == EditorSettings()
    assert package["version"] == __version__
