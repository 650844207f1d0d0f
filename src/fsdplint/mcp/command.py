"""`fsdplint mcp`: its options, and what it needs."""

from __future__ import annotations

import os

import click


@click.command()
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False),
    default=".",
    metavar="FOLDER",
    help="Folder that the tools may read and write. The default is the current folder.",
)
def mcp(root: str) -> None:
    """Serve check, explain, inspect, verify, and fix to coding agents.

    The server speaks the Model Context Protocol on standard input and output. It refuses paths
    outside the root. `verify` executes the script that it is given.

    Requires `pip install 'fsdplint[mcp]'`.
    """
    try:
        from fsdplint.mcp.server import serve
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "mcp":
            raise
        raise click.ClickException(
            "the MCP server needs the package mcp 2: pip install 'fsdplint[mcp]'"
        ) from error
    os.chdir(root)
    serve()
