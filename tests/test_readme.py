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
