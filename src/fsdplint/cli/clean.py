"""`fsdplint clean`: the cache is removed, and what killed runs of verify have left."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from fsdplint.cache import folder
from fsdplint.cli import CLEAN
from fsdplint.process.terminal import printable


@click.command()
def clean() -> int:
    """Remove the cache: the folder of $FSDPLINT_CACHE_DIR, else the one in the user's caches.

    Only files that fsdplint wrote are removed. A folder that a symbolic link leads to is emptied.

    It holds the reports of runs, by which a run that would end the same is told at once, and what
    files were parsed to, by which a run after a change parses what changed.

    It also removes the scratch copies that killed runs of verify left in the temporary folder.
    """
    place = folder.place()
    shown = printable(place)
    try:
        removed = folder.clean(place) if place else None
    except folder.NotOursError as error:
        raise click.ClickException(f"{shown} {error}") from error
    if removed is None:
        click.echo("There is no cache.")
    else:
        count, size = removed
        files = f"{count} file{'s'[: count != 1]}"
        done = f"Removed {shown}"
        if Path(place).is_symlink():
            done = f"Emptied {printable(os.path.realpath(place))}, which {shown} leads to"
        click.echo(f"{done}: {files}, {-(-size // 1000)} kB.")
    _remove_leftovers()
    return CLEAN


def _remove_leftovers() -> None:
    if sys.platform != "win32":  # where verify does not run
        from fsdplint.verify.workspace import remove_leftovers

        if count := remove_leftovers():
            runs = f"{count} killed run{'s'[: count != 1]}"
            click.echo(f"Removed what {runs} of verify left behind.")
