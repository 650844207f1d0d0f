"""`fsdplint server`."""

from __future__ import annotations

from importlib.util import find_spec

import click


@click.command()
def server() -> None:
    """Run the language server on standard input and output.

    Editors start it. It requires the extra `server`: pip install 'fsdplint[server]'.
    """
    if find_spec("pygls") is None or find_spec("lsprotocol") is None:
        raise click.ClickException(
            "the language server requires pygls; install it with: pip install 'fsdplint[server]'"
        )
    from fsdplint.server.language_server import serve

    serve()
