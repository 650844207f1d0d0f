"""`fsdplint server`."""

from __future__ import annotations

import click

_EXTRA = ("lsprotocol", "pygls")


@click.command()
def server() -> None:
    """Run the language server on standard input and output.

    Editors start it. It requires the extra `server`: pip install 'fsdplint[server]'.
    """
    try:
        from fsdplint.server.startup import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        raise click.ClickException(
            "the language server requires pygls; install it with: pip install 'fsdplint[server]'"
        ) from error
    serve()
