"""Nothing is written through a symbolic link that leaves the project, as in git.

A hostile project could otherwise have any file of the user's changed, by a link instead of a
source file, a report or a folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from fsdplint.files import disk
from fsdplint.files.discover import project_root, repository
from fsdplint.files.file import absolute
from fsdplint.finding import Finding

DECLINED = (
    "a symbolic link leads {} outside the project, where fsdplint does not write; "
    "pass the real path instead"
)


def leaves(path: str, given: Iterable[str] = ()) -> bool:
    """Return whether a link takes the file at the absolute ``path`` out of the project.

    These are every git repository around it, and what the current folder and the ``given`` paths
    lie in: their repository, else their project. A path in none of these leaves nothing.
    """
    real = disk.real(path)
    return real != path and any(
        not Path(real).is_relative_to(disk.real(root)) for root in _around(Path(path), given)
    )


def without_writes(findings: Sequence[Finding], left: frozenset[str]) -> Iterator[Finding]:
    """Yield ``findings``; a fix that would write one of the files ``left`` is declined."""
    for finding in findings:
        edits = finding.fix.edits if finding.fix else ()
        beyond = next((edit.span.path for edit in edits if edit.span.path in left), "")
        reason = DECLINED.format(f"`{Path(beyond).name}`")
        yield replace(finding, fix=None, fix_declined=reason) if beyond else finding


def _around(path: Path, given: Iterable[str]) -> Iterator[Path]:
    yield from (folder for folder in path.parents if disk.exists(folder / ".git"))
    homes = {home(Path(absolute(start))) for start in (".", *given)}
    yield from (home for home in homes if path.is_relative_to(home))


def home(start: Path) -> Path:
    """Return the root of the repository that ``start`` is in, else of its project."""
    project = project_root(start)
    found = repository(project)
    return found if disk.exists(found / ".git") else project
