"""Colour, or none."""

from __future__ import annotations

from typing import Protocol


class Style(Protocol):
    """Gives text a role's look."""

    def __call__(self, text: str, role: str) -> str: ...


_ROLES: dict[str, dict[str, str | bool]] = {
    "path": {"bold": True},
    "code": {"fg": "red", "bold": True},
    "error": {"fg": "red", "bold": True},
    "warning": {"fg": "yellow", "bold": True},
    "note": {"fg": "cyan", "bold": True},
    "fixable": {"fg": "cyan"},
    "added": {"fg": "green"},
    "removed": {"fg": "red"},
    "hunk": {"fg": "cyan"},
    "aside": {"dim": True},
    "gutter": {"fg": "blue", "bold": True},
    "secondary": {"fg": "blue", "bold": True},
}


def plain(text: str, role: str) -> str:  # noqa: ARG001 - a Style
    """Return ``text`` as it is."""
    return text


def coloured(text: str, role: str) -> str:
    """Return ``text`` with the terminal's codes for ``role``."""
    from click import style

    return style(text, **_ROLES[role])  # type: ignore[arg-type] # fg is a str, bold a bool
