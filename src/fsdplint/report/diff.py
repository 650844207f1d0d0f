"""What fixing changes, as a patch."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fsdplint.outcome import Changes
from fsdplint.report.places import relative
from fsdplint.source import SourceFile

_LINE = re.compile(r"[^\n]*\n|[^\n]+")


def diff(changes: Changes) -> str:
    """A unified diff of the changed files, of a notebook's joined code cells."""
    return "".join(
        line for before, after in changes.files for line in _file(changes, before, after)
    )


def _file(changes: Changes, before: SourceFile, after: SourceFile) -> Iterator[str]:
    from difflib import unified_diff

    path = relative(changes.outcome, before.path)
    old, new = (_LINE.findall(source.text) for source in (before, after))
    for line in unified_diff(old, new, path, path):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
