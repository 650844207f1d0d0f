"""`fsdplint inspect`: the analysis of a script."""

from __future__ import annotations

import sys

import click

from fsdplint.check import inspect as understand
from fsdplint.process.terminal import color_option, progress, show, wants_colour
from fsdplint.report.inspection import inspection_as_json, inspection_as_text
from fsdplint.report.style import Style


@click.command()
@click.argument("script", type=click.Path())
@click.option(
    "--output-format",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="Output format.",
)
@color_option
def inspect(script: str, output_format: str) -> None:
    """Show the models, sharding, and optimizers found in SCRIPT.

    Also show the order of their calls, and code that the analysis could not resolve.
    """
    with progress("fsdplint: reading…"):
        inspection, outcome = understand(script)
    color = wants_colour(sys.stdout)
    if output_format == "json":
        show(inspection_as_json(inspection, outcome))
    else:
        show(inspection_as_text(inspection, outcome, Style(color)), color)
