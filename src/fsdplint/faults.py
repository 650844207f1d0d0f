"""Faults of fsdplint's own."""

from __future__ import annotations

import os

from fsdplint.files import disk


def internal(where: str, error: Exception) -> str:
    """One line that tells of ``error``, which is raised instead where it is looked for.

    Args:
        where: what of fsdplint is at fault.
    """
    disk.unrepeatable()
    if os.environ.get("FSDPLINT_DEBUG"):
        raise error
    what = " ".join(f"{type(error).__name__}: {error}".split())
    return f"internal error in {where}, please report it: {what} (FSDPLINT_DEBUG=1 shows where)"
