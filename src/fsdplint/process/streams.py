"""The standard streams, which print whatever they are given."""

from __future__ import annotations

import sys


def tolerate_any_text() -> None:
    """Let the standard streams print what their encodings lack."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
