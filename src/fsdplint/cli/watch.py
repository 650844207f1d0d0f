"""`check --watch`: run again whenever a file changes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click

from fsdplint.cli import CLEAN
from fsdplint.files.discover import (
    SKIPPED_DIRECTORIES,
    SUFFIXES,
    is_config,
    is_project,
    project_root,
)
from fsdplint.files.file import absolute

_SETTINGS = frozenset({".gitignore", "fsdplint.toml", "pyproject.toml"})
_MISSING = "--watch requires watchfiles; install it with `pip install 'fsdplint[watch]'`"
_WAIT = 200  # milliseconds, after which the first run starts


def watch(run: Callable[[], int], paths: Sequence[str], more: Sequence[str], quiet: bool) -> int:
    """Call ``run``, and again after each change, until the user presses Ctrl-C.

    An error in the first run ends the watch. One in a later run, such as a mistake in the settings
    that are being edited, is printed.

    Args:
        paths: the files and folders that ``run`` checks.
        more: other files that it reads.
        quiet: whether to print nothing but what ``run`` prints.
    """
    try:
        from watchfiles import watch as changes
    except ImportError as error:
        raise click.ClickException(_MISSING) from error
    first = True
    try:
        # The first batch is empty: the watch begins before the first run, which misses no change.
        for batch in changes(
            *_roots(paths, more),
            watch_filter=lambda _, path: _matters(path, more),
            rust_timeout=_WAIT,
            yield_on_timeout=True,
        ):
            if first or batch:
                _run(run, first, quiet)
                first = False
    except KeyboardInterrupt:
        click.echo(err=True)  # after the terminal's ^C
    return CLEAN


def _run(run: Callable[[], int], first: bool, quiet: bool) -> None:
    click.clear()  # which does nothing unless standard output is a terminal
    try:
        run()
    except OSError:  # such as standard output that nobody reads any more
        raise
    except Exception as error:
        if first:
            raise
        from fsdplint.cli.main import failed

        failed(error)
    sys.stdout.flush()
    if not quiet:
        click.echo("fsdplint: watching for changes; press Ctrl-C to stop", err=True)


def _roots(paths: Sequence[str], more: Sequence[str]) -> Iterator[str]:
    """Yield the folders to watch: the paths, their projects, and the folders of other files."""
    found = set[Path]()
    for path in map(Path, map(absolute, paths)):
        found.add(path if path.is_dir() else path.parent)
        if is_project(root := project_root(path)):
            found.add(root)
    found.update(Path(absolute(path)).parent for path in more)
    for folder in sorted(found):
        if folder.is_dir() and not found.intersection(folder.parents):
            yield str(folder)


def _matters(path: str, more: Sequence[str]) -> bool:
    """Return whether a run may end differently after a change of the file at ``path``."""
    file = Path(path)
    if SKIPPED_DIRECTORIES.intersection(file.parts):
        return False
    checked = path.endswith(SUFFIXES) or is_config(path)
    return checked or file.name in _SETTINGS or path in map(absolute, more)
