"""`fsdplint clean`: remove the cache, and what killed runs of verify left behind."""

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
    """Remove the cache.

    The cache folder is $FSDPLINT_CACHE_DIR or, if that is not set, fsdplint in your user cache. It
    holds reports and parsed files, which make repeated checks fast. Only files that fsdplint wrote
    are removed. If the folder is a symbolic link, its target is emptied.

    Also remove the scratch copies that killed runs of verify left in the temporary folder.
    """
    place = folder.place()
    shown = printable(place)
    try:
        removed = folder.clean(place) if place else None
    except folder.NotOursError as error:
        raise click.ClickException(f"{shown}: {error}") from error
    if removed is None:
        click.echo("No cache found.")
    else:
        count, size = removed
        files = f"{count} file{'s'[: count != 1]}"
        done = f"Removed {shown}"
        if Path(place).is_symlink():
            done = f"Emptied {printable(os.path.realpath(place))}, the target of {shown}"
        click.echo(f"{done}: {files}, {-(-size // 1000)} kB.")
    _remove_leftovers()
    return CLEAN


def _remove_leftovers() -> None:
    if sys.platform != "win32":  # where verify does not run
        from fsdplint.verify.workspace import remove_leftovers

        if count := remove_leftovers():
            runs = f"{count} killed run{'s'[: count != 1]}"
            click.echo(f"Removed the leftovers of {runs} of verify.")
