"""Draw the report on a broken script, for the README, or check that it is up to date.

python scripts/picture.py [--check]
"""

from __future__ import annotations

import argparse
import html
import io
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from fsdplint.check import check
from fsdplint.report import render
from fsdplint.report.style import Style
from fsdplint.settings.config import defaults

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs" / "finding.svg"
WIDTH = 100  # columns
# The picture loads nothing from elsewhere: it falls back to the reader's own monospaced font.
_FONT = re.compile(r"@font-face \{\{.*?\}\}\n", re.DOTALL)
SCRIPT = """\
import torch
from torch.distributed.fsdp import fully_shard

from gpt import GPT

model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
for block in model.blocks:
    fully_shard(block)
fully_shard(model)

for batch in torch.randint(32_000, (1000, 8, 64)):
    model(batch).logsumexp(-1).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def main(arguments: list[str] | None = None) -> int:
    """Draw or check the picture; the exit status is 1 if it shows something else."""
    parser = argparse.ArgumentParser(description="Draw the README's finding.")
    parser.add_argument("--check", action="store_true", help="only check that it is up to date")
    console = drawn(printed())
    if not parser.parse_args(arguments).check:
        format_ = _FONT.sub("", CONSOLE_SVG_FORMAT)
        title = "fsdplint check train.py"
        svg = console.export_svg(title=title, unique_id="finding", code_format=format_)
        PICTURE.write_text("".join(f"{line.rstrip()}\n" for line in svg.splitlines()), "utf-8")
        return 0
    if shown(PICTURE.read_text("utf-8")) == "".join(console.export_text().split()):
        return 0
    print(f"{PICTURE.name} is out of date; run python scripts/picture.py", file=sys.stderr)
    return 1


def printed() -> str:
    """Return what fsdplint prints of the script, with colours."""
    with TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(SCRIPT, "utf-8")
        outcome = check([folder], defaults())
    text = render(outcome, "full", style=Style(color=True))
    return text.replace(f"{folder}/", "")


def drawn(text: str) -> Console:
    """Return a recording of a terminal that shows ``text``."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(text))
    return console


def shown(svg: str) -> str:
    """Return the characters in a picture, apart from blanks and its title."""
    lines = re.findall(r'<text class="[^"]*-r\d+"[^>]*>(.*?)</text>', svg)
    return "".join(html.unescape("".join(lines)).split())


if __name__ == "__main__":
    sys.exit(main())
