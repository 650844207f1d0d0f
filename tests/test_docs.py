"""The page on how the analysis works names modules and packages that are there."""

from __future__ import annotations

import re
from pathlib import Path

from ranks import Ranks, report

from fsdplint.check import check_text

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "fsdplint"
PAGE = (ROOT / "docs" / "how-it-works.md").read_text("utf-8")


def test_each_module_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"[\w/]+\.py\b|\b[\w/]+/(?=[\s`,])", PAGE))
    assert len(named) > 15
    folders = (PACKAGE, PACKAGE / "engine", PACKAGE / "engine" / "interpreter")
    missing = {name for name in named if not any((each / name).exists() for each in folders)}
    assert missing == set()


def test_the_page_is_one_page() -> None:
    assert len(PAGE.splitlines()) <= 100


def test_the_migration_holds(ranks: Ranks) -> None:
    page = ROOT / "docs" / "migrate.md"
    (code,) = re.findall(r"```python ranks=2\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    told = report(ranks.run(code, path=str(page), world_size=2))
    assert not told, told
    assert check_text(code, "train.py") == []
