"""`fsdplint new`: start a training project."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import click

from fsdplint.cli import CLEAN
from fsdplint.new.render import Features, UnsupportedError, render
from fsdplint.new.write import OccupiedError, create
from fsdplint.process.terminal import printable


@click.command()
@click.argument("path", metavar="NAME", type=click.Path(path_type=Path))
@click.option(
    "--tp", is_flag=True, help="Split layers by tensor parallelism, in a mesh of two dimensions."
)
@click.option(
    "--hsdp", is_flag=True, help="Keep several copies of the model, each sharded over its ranks."
)
@click.option("--meta", is_flag=True, help="Build the model on the meta device, without memory.")
@click.option(
    "--dcp",
    is_flag=True,
    help="Save checkpoints in shards with torch.distributed.checkpoint, not in one file.",
)
@click.option(
    "--accelerate", is_flag=True, help="Launch, shard and save with accelerate, not torchrun."
)
def new(path: Path, tp: bool, hsdp: bool, meta: bool, dcp: bool, accelerate: bool) -> int:
    """Create a training project for FSDP2 in the folder NAME.

    It has a model, data, a training loop that resumes, tests on CPU ranks, and CI. `fsdplint check`
    finds nothing in it, and `fsdplint verify` confirms what it does.
    """
    features = Features(tp, hsdp, meta, dcp, accelerate)
    try:
        files = render(path.absolute().name, features)
        create(path, files)
    except UnsupportedError as error:
        raise click.UsageError(str(error)) from error
    except OccupiedError as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"Created {printable(str(path))} with {len(files)} files:")
    for name in sorted(files):
        click.echo(f"  {name}")
    click.echo("Next:")
    for command in _next(path, features):
        click.echo(f"  {printable(command)}")
    return CLEAN


def _next(path: Path, features: Features) -> Iterator[str]:
    yield f"cd {shlex.quote(str(path))}"
    yield "python3 -m venv .venv && . .venv/bin/activate && pip install -e '.[dev]'"
    yield "fsdplint check"
    if features.accelerate:
        yield "pytest  # includes fsdplint verify"
        yield "accelerate launch --config_file fsdp.yaml train.py"
    else:
        yield "fsdplint verify train.py"
        yield "torchrun --nproc-per-node 2 train.py"
