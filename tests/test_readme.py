"""The README and the pages are true: what they draw is what the command prints, and links lead
somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fsdplint.cli import main as cli

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "rules" / "README.md"]
ABOVE = """\
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(8, 8) for _ in range(6)])


torch.manual_seed(0)
model = GPT()
"""


def test_the_finding_that_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    drawn = re.search(r"```text\n(.*?)```", README, re.DOTALL)
    assert code is not None
    assert drawn is not None
    (tmp_path / "train.py").write_text(ABOVE + code[1], "utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        cli.main(["check", "train.py"])
    assert ended.value.code == 1
    assert capsys.readouterr().out == drawn[1]


def test_every_setting_is_read(tmp_path: Path) -> None:
    from fsdplint.settings.config import _DEFAULTS, load_settings

    page = (ROOT / "docs" / "settings.md").read_text("utf-8")
    table = re.search(r"```toml\n(.*?)```", page, re.DOTALL)
    assert table is not None
    (tmp_path / "pyproject.toml").write_text(table[1], "utf-8")
    settings = load_settings(tmp_path / "pyproject.toml")
    assert "only-root-sharded" not in settings.select
    assert all(key in table[1] for key in _DEFAULTS)


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


@pytest.mark.parametrize(
    "page", [*PAGES, *sorted((ROOT / "docs").glob("*.md"))], ids=lambda page: page.stem
)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text("utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_each_page_is_named_in_the_readme() -> None:
    pages = {page.name for page in (ROOT / "docs").glob("*.md")}
    assert pages == set(re.findall(r"\(docs/([\w-]+\.md)\)", README))
