"""`fsdplint migrate checkpoint`: convert a checkpoint to one that FSDP2 loads."""

from __future__ import annotations

from pathlib import Path

import click

from fsdplint.cli import CLEAN
from fsdplint.process.terminal import printable


@click.command()
@click.argument("old", type=click.Path(exists=True, path_type=Path))
@click.argument("new", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "layout",
    type=click.Choice(("dcp", "torch")),
    default="dcp",
    show_default=True,
    help="Write a torch.distributed.checkpoint folder (dcp) or a torch.save file (torch).",
)
@click.option(
    "--in-model-order",
    is_flag=True,
    help="The optimizer numbers its parameters in the order of model.parameters(), in each group.",
)
@click.option(
    "--parameter-names",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="File with the optimizer's parameter names, one a line, in its order.",
)
@click.option("--model-only", is_flag=True, help="Leave optimizer states out.")
def checkpoint(
    old: Path,
    new: Path,
    layout: str,
    in_model_order: bool,
    parameter_names: Path | None,
    model_only: bool,
) -> int:
    """Convert a checkpoint of FSDP1, DDP, or a single process to one that FSDP2 loads.

    OLD is a file written by torch.save, or a folder written by torch.distributed.checkpoint. It is
    never changed, and no code in it is run. NEW must not exist.
    """
    try:
        from fsdplint.checkpoints.convert import Options, convert
        from fsdplint.checkpoints.files import CheckpointError
    except ImportError as error:
        raise click.ClickException(
            "migrate checkpoint requires PyTorch 2.6 or newer: pip install 'fsdplint[verify]' "
            f"({error})"
        ) from error

    names = None if parameter_names is None else _lines(parameter_names)
    try:
        entries = convert(old, new, Options(layout, names, in_model_order, model_only))
    except CheckpointError as error:
        raise click.ClickException(str(error)) from error
    click.echo(printable(f"Read {old}"))
    for entry in entries:
        click.echo(printable(f"  {entry}"))
    kind = "a torch.distributed.checkpoint folder" if layout == "dcp" else "a torch.save file"
    click.echo(printable(f"Wrote {new}, {kind}"))
    return CLEAN


def _lines(file: Path) -> tuple[str, ...]:
    try:
        return tuple(line.strip() for line in file.read_text("utf-8").splitlines() if line.strip())
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{file}: {error}") from error
