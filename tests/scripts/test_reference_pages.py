"""The reference pages are those that the code writes, and leave no command or error out."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import click

from fsdplint.cli.main import cli
from fsdplint.knowledge.errors import known
from fsdplint.settings.keys import KEYS

ROOT = Path(__file__).parents[2]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "scripts" / "reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reference = load()


def test_the_pages_are_current() -> None:
    assert reference.main(["--check"]) == 0


def test_every_option_of_every_command_is_on_the_page() -> None:
    page = (ROOT / "docs" / "cli.md").read_text("utf-8")
    context = click.Context(cli)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        section = page.partition(f"\n## `fsdplint {name}`\n")[2].partition("\n## ")[0]
        options = [p.opts[0] for p in command.params if isinstance(p, click.Option)]
        listed = set(re.findall(r"(?<=[` ])--?[a-z-]+(?=[` ,])", section))
        assert set(options) - listed == set()


def test_every_key_of_the_settings_is_on_the_page() -> None:
    page = (ROOT / "docs" / "settings.md").read_text("utf-8")
    assert [key for key in KEYS if f"| `{key}` |" not in page] == []


def test_every_error_is_on_the_page() -> None:
    page = reference.errors()
    assert [
        error.message for error in known() if f"### {reference._code(error.message)}" not in page
    ] == []
