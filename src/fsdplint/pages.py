"""The pages of the rules: what each one finds and why, as its users and its tests read it."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent


def page(name: str) -> str:
    """The Markdown text of the rule called ``name``.

    Raises:
        FileNotFoundError: neither the installed package nor a checkout has that page.
    """
    # Beside the modules in an installed package; at the top of a checkout, for its readers.
    for directory in (_PACKAGE / "rules", _PACKAGE.parent.parent / "rules"):
        file = directory / f"{name}.md"
        if file.is_file():
            return file.read_text("utf-8")
    raise FileNotFoundError(f"no page for rule {name!r}")
