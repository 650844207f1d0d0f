"""How reports for people look: coloured and linked, or plain."""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Style:
    """Gives text a role's look.

    Attributes:
        links: whether the terminal shows hyperlinks (OSC 8).
        summary: whether a report ends with a summary.
    """

    color: bool = False
    links: bool = False
    summary: bool = True

    def __call__(self, text: str, role: str) -> str:
        """Return ``text`` with the terminal's codes for ``role``, if it has colours."""
        if not self.color:
            return text
        from click import style

        return style(text, **_ROLES[role])  # type: ignore[arg-type] # fg is a str, bold a bool

    def link(self, text: str, url: str) -> str:
        """Return ``text`` as a link to ``url``, if the terminal shows links."""
        return f"\x1b]8;;{url}\x1b\\{text}\x1b]8;;\x1b\\" if self.links else text


plain = Style()
