"""The pages of the rules: what each one finds and why, as its users and its tests read it."""

from __future__ import annotations

import re
from pathlib import Path

from fsdplint.files import disk

_PACKAGE = Path(__file__).parents[1]
_SAYS = "What PyTorch says"
_BLOCK = re.compile(r"^```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^\]]*)\]\((https?://[^)\s]*)\)")
_MARKUP = re.compile(r"^(?:#+ |```.*\n)", re.MULTILINE)


def page(name: str) -> str:
    """Return the Markdown text of the rule called ``name``.

    Raises:
        FileNotFoundError: neither the installed package nor a checkout has that page.
    """
    # Beside the modules in an installed package; at the top of a checkout, for its readers.
    for directory in (_PACKAGE / "rules", _PACKAGE.parent.parent / "rules"):
        file = directory / f"{name}.md"
        if disk.is_file(file):
            disk.status(file)
            return disk.content(file).decode()
    raise FileNotFoundError(f"no page for rule {name!r}")


def section(text: str, heading: str) -> str:
    """Return what the page's ``text`` says under ``heading``."""
    return text.partition(f"## {heading}\n")[2].partition("\n## ")[0].strip()


def harm(text: str) -> str:
    """Return the first paragraph of the page's ``text`` on why what the rule finds is bad."""
    return section(text, "Why is this bad?").partition("\n\n")[0]


def messages(text: str) -> tuple[str, ...]:
    """Return what PyTorch says at run time, one message a line; ``…`` stands for what varies."""
    blocks = _BLOCK.findall(section(text, _SAYS))
    return tuple(line.strip() for block in blocks for line in block.splitlines() if line.strip())


def unmarked(text: str) -> str:
    """Return ``text`` without Markdown's markup."""
    return _LINK.sub(r"\1 (\2)", _MARKUP.sub("", text))
