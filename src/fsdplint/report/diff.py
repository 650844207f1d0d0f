"""The changes of fixes, as a patch."""

from __future__ import annotations

import re
from collections.abc import Iterator

from fsdplint.files.file import SourceFile
from fsdplint.outcome import Changes
from fsdplint.process.terminal import printable
from fsdplint.report.places import shown
from fsdplint.report.style import Style

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_ROLES = {"+": "added", "-": "removed", "@": "hunk"}


def diff(changes: Changes, style: Style, exact: bool = True) -> str:
    """Return a unified diff of the changed files; of a notebook, of its joined code cells.

    Args:
        exact: keep control characters, for a program; a terminal would obey them.
    """
    return "".join(
        _styled(line if exact else _escaped(line), style)
        for before, after in changes.files
        for line in _file(changes, before, after)
    )


def _file(changes: Changes, before: SourceFile, after: SourceFile) -> Iterator[str]:
    from difflib import unified_diff

    path = shown(changes.outcome, before.path)
    # With the byte order mark, or the patch would not fit the file's first line.
    mark = "\ufeff" if before.bom else ""
    old, new = (_LINE.findall(mark + source.text) for source in (before, after))
    for line in unified_diff(old, new, path, path):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _escaped(line: str) -> str:
    text = line.rstrip("\r\n")
    return printable(text, "\t") + line[len(text) :]


def _styled(line: str, style: Style) -> str:
    role = _ROLES.get(line[0])
    text = line.rstrip("\r\n")
    return style(text, role) + line[len(text) :] if role and text else line
