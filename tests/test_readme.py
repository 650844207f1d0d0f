"""The README and the pages are true: settings are read, code runs, links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "rules" / "README.md"]


def test_every_key_of_the_settings_has_an_example_that_is_read(tmp_path: Path) -> None:
    from fsdplint.settings.config import defaults, load_settings
    from fsdplint.settings.keys import KEYS

    file = tmp_path / "fsdplint.toml"
    for name, key in KEYS.items():
        file.write_text(f"{name} = {key.example}\n", "utf-8")
        assert load_settings(file) != defaults(), name


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


@pytest.mark.parametrize(
    "page", [*PAGES, *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.stem
)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text("utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []
