"""The site has every page, and links that lead to its pages or to the repository."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_hook", ROOT / "scripts" / "site.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


site = load()


@pytest.mark.parametrize(
    ("link", "there", "target"),
    [
        ("docs/verify.md", "index.md", "verify.md"),
        ("rules/README.md", "index.md", "rules/index.md"),
        ("examples", "index.md", "R/tree/main/examples"),
        ("../action.yml", "github.md", "R/blob/main/action.yml"),
        ("settings.md", "github.md", "settings.md"),
        ("../rules/direct-forward.md", "not-found.md", "rules/direct-forward.md"),
        ("direct-forward.md", "rules/index.md", "../rules/direct-forward.md"),
        ("../CONTRIBUTING.md", "rules/direct-forward.md", "../contributing.md"),
    ],
)
def test_where_a_link_leads(link: str, there: str, target: str) -> None:
    assert site._target(link, site.source(there), there, "R") == target


class File:
    src_uri = "errors.md"


class ErrorsPage:
    file = File


def test_the_page_of_errors_links_within_the_site() -> None:
    markdown = site.run_path(str(ROOT / "scripts" / "reference.py"))["errors"]()
    links = set(re.findall(r"\]\((rules/[\w-]+\.md)\)", markdown))
    assert len(links) > 30
    assert all((ROOT / link).is_file() for link in links)
    assert site.on_page_markdown(markdown, ErrorsPage, {"repo_url": "R"}) == markdown


def test_each_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:")[2]
    named = set(re.findall(r": ([\w/-]+\.md)", navigation))
    pages = {page.name for page in (ROOT / "docs").glob("*.md")}
    assert named == pages | set(site.PAGES.values()) | {"rules/index.md", "errors.md"}
