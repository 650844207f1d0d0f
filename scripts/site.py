"""What the documentation site has beside `docs/`: rule pages, README, errors, llms.txt, ….

A hook of MkDocs (1.6), which calls the functions by their names. The pages stay where they are and
as GitHub shows them; only their links and fences are made the site's here. The page of all known
errors is written while the site is built, which takes an installed fsdplint.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from posixpath import normpath
from runpy import run_path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Pages of the repository's root, and what the site calls them."""
_LINK = re.compile(r"(\]\()(?!https?://|#|mailto:)([^)#\s]*)")
_FENCE = re.compile(r"^(```+\w+) .+$", re.MULTILINE)
"""Fences may say on what their example is run, which the site's Markdown takes for no fence."""


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not in ``docs``."""
    from mkdocs.structure.files import File

    for name, there in PAGES.items():
        files.append(File.generated(config, there, abs_src_path=str(ROOT / name)))
    for page in sorted((ROOT / "rules").glob("*.md")):
        there = f"rules/{'index' if page.stem == 'README' else page.stem}.md"
        files.append(File.generated(config, there, abs_src_path=str(page)))
    errors = run_path(str(ROOT / "scripts" / "reference.py"))["errors"]()
    files.append(File.generated(config, "errors.md", content=errors))
    overview = llms(config["nav"], config["site_url"], config["site_description"])
    files.append(File.generated(config, "llms.txt", content=overview))
    return files


def llms(nav: list[dict[str, Any]], url: str, description: str) -> str:
    """Return the overview of the site for language models (https://llmstxt.org)."""
    return "\n".join(["# fsdplint", "", f"> {description}", *_overview(nav, url)]) + "\n"


def _overview(nav: list[dict[str, Any]], url: str) -> Iterator[str]:
    """Yield a section of links for each of the navigation, one for the rules, and the schemas."""
    sections = [*(entry for each in nav for entry in each.items())]
    yield from ("", *(_link(title, _address(page, url)) for title, page in sections[:1]))
    for title, entries in sections[1:]:
        yield from ("", f"## {title}", "")
        for entry in entries:
            yield from (_link(name, _address(page, url)) for name, page in entry.items())
        if title == "Rules":
            yield from _rules(url)
    yield from ("", "## Schemas of JSON output", "")
    for path in sorted((ROOT / "docs" / "schemas").glob("*.json")):
        title = json.loads(path.read_text("utf-8"))["title"]
        yield _link(path.name, f"{url}schemas/{path.name}", title)


def _rules(url: str) -> Iterator[str]:
    for rule in json.loads((ROOT / "src/fsdplint/rules/table.json").read_text("utf-8")):
        page = f"rules/{rule['name']}.md"
        yield _link(f"{rule['name']} ({rule['code']})", _address(page, url), rule["summary"])


def _address(page: str, url: str) -> str:
    """Return where the site has a page."""
    path = page.removesuffix(".md")
    return url if path == "index" else f"{url}{path.removesuffix('index').rstrip('/')}/"


def _link(name: str, address: str, notes: str = "") -> str:
    return f"- [{name}]({address}){notes and ': '}{notes}"


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Return a page with links that lead to the site's pages, or to the repository."""
    here = source(page.file.src_uri)

    if page.file.src_uri == "errors.md":
        return markdown

    def link(found: re.Match[str]) -> str:
        return f"{found[1]}{_target(found[2], here, page.file.src_uri, config['repo_url'])}"

    return _FENCE.sub(r"\1", _LINK.sub(link, markdown))


def source(there: str) -> PurePosixPath:
    """Return where a page of the site is in the repository."""
    for name, renamed in PAGES.items():
        if there == renamed:
            return PurePosixPath(name)
    if there == "rules/index.md":
        return PurePosixPath("rules/README.md")
    return PurePosixPath(there if there.startswith("rules/") else f"docs/{there}")


def _target(link: str, here: PurePosixPath, there: str, repository: str) -> str:
    path = normpath(str(here.parent / link))
    found = _page(path)
    if found is None:
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        return f"{repository}/{kind}/main/{path}"
    up = "../" * (len(PurePosixPath(there).parts) - 1)
    return f"{up}{found}"


def _page(path: str) -> str | None:
    """Return the site's name of a file of the repository; None if it is no page."""
    if path in PAGES:
        return PAGES[path]
    if path in ("rules", "rules/README.md"):
        return "rules/index.md"
    if path.startswith("rules/") and path.endswith(".md"):
        return path
    return path.removeprefix("docs/") if path.startswith("docs/") else None
