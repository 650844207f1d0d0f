"""Reports of a verification: each is a pure function of the verification and its sources."""

from __future__ import annotations

from pathlib import Path

from fsdplint.report.style import Style
from fsdplint.verify.report.compact import as_compact
from fsdplint.verify.report.json import as_json
from fsdplint.verify.report.text import as_text
from fsdplint.verify.verdict import Verification


def render(
    verification: Verification,
    format_: str,
    directory: Path,
    *,
    color: bool,
    width: int,
    quiet: bool = False,
) -> str:
    """Return ``verification`` in the format called ``format_``, ending with a newline.

    Args:
        directory: what the places in it are relative to.
        width: of a text, in columns.
        quiet: of a text, only what is violated, why the script ended, and the last line.
    """
    if format_ == "json":
        return as_json(verification)
    if format_ == "compact":
        return as_compact(verification)
    if format_ == "html":
        from fsdplint.verify.report.html import as_html  # loads Jinja

        return as_html(verification, directory)
    if format_ == "sarif":
        from fsdplint.verify.report.sarif import as_sarif  # loads sarif-om

        return as_sarif(verification, directory)
    return as_text(verification, directory, Style(color), width, quiet)
