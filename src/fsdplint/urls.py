"""Where fsdplint is published."""

from __future__ import annotations

DOCUMENTATION = "https://OWNER.github.io/fsdplint/"


def rule_url(name: str) -> str:
    """Return the address of the page of the rule called ``name``, which never changes."""
    return f"{DOCUMENTATION}rules/{name}/"
