"""The site has every page, and links that lead to its pages or to the repository."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from fsdplint.rules import RULES

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


def test_the_overview_links_to_every_page_rule_and_schema() -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))
    text = site.llms(settings["nav"], "https://x/", "What it is.")
    assert text.startswith(
        "# fsdplint\n\n> What it is.\n\n- [Get started](https://x/)\n\n"
        "## Guides\n\n- [Start a project](https://x/new/)\n- [Check code](https://x/check/)\n"
    )
    assert (
        "\n## Rules\n\n- [All rules](https://x/rules/)\n- [Errors](https://x/errors/)\n"
        "- [invalid-syntax (FSD001)](https://x/rules/invalid-syntax/): a file is not valid Python\n"
    ) in text
    assert (
        "\n- [compact.schema.json](https://x/schemas/compact.schema.json): "
        "The report of `fsdplint check --output-format compact`\n"
    ) in text
    links = re.findall(r"\]\((.*?)\)", text)
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")}
    pages |= {name.removesuffix(".md") for name in site.PAGES.values()} - {"index"}
    pages |= {"rules", "errors", *(f"rules/{rule.name}" for rule in RULES)}
    schemas = {f"https://x/schemas/{path.name}" for path in (ROOT / "docs/schemas").iterdir()}
    assert set(links) == {"https://x/", *(f"https://x/{page}/" for page in pages)} | schemas
    assert len(links) == len(set(links))


def test_each_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:")[2]
    named = set(re.findall(r": ([\w/-]+\.md)", navigation))
    pages = {page.name for page in (ROOT / "docs").glob("*.md")}
    assert named == pages | set(site.PAGES.values()) | {"rules/index.md", "errors.md"}
