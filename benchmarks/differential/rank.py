"""One rank of a run: the script as `__main__`, with what it does noted.

It runs in a fork of a process that has torch loaded, and simulates the devices.
"""

from __future__ import annotations

import ast
import functools
import gc
import json
import os
import random
import re
import resource
import runpy
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch._dynamo  # before anything is patched: it keeps copies
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DistributedSampler

from benchmarks.differential.program import Configuration
from benchmarks.differential.record import RAISED, Rank
from fsdplint.verify.processes import launcher_environment
from fsdplint.verify.rank import access, observer, patch, spawn
from fsdplint.verify.rank.access import digest
from fsdplint.verify.rank.recorder import prepares_state
from fsdplint.verify.rank.shim.devices import MACHINE

STEPS = 12
"""Optimizer steps after which a script is ended."""
_CPU_SECONDS = 60
_LINES = 400
_ROOT = Path(__file__).resolve().parents[2]
_STAND_INS = Path(__file__).resolve().parent / "stand_ins"
_ADDRESS = re.compile(r"0x[0-9a-f]+|(?<=id )\d{6,}")

assert observer  # what it imports must be loaded before the shim patches it


class Finished(BaseException):
    """Ends a script that has made `STEPS` steps."""


def prepare() -> None:
    """Get a process ready to be forked into ranks."""
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    patch.prepare()
    gc.collect()
    gc.freeze()


def live(folder: Path, entry: str, configuration: Configuration, rank: int, port: int) -> NoReturn:
    """Run the script in this process and write what it did to the folder."""
    record = Rank()
    _settle(folder, configuration, rank, port)
    local_rank = rank % configuration.local_ranks
    try:
        _watch(record, configuration, local_rank, folder / f"{rank}.out")
        sys.argv = [entry, *(a.format(rank=local_rank) for a in configuration.arguments)]
        runpy.run_path(entry, run_name="__main__")
    except Finished:
        record.facts.append("finished")
    except SystemExit as exit_:
        if exit_.code not in (None, 0):
            record.status, record.error = RAISED, f"SystemExit: {exit_.code}"
            record.stack = _stack(exit_, folder)
    except BaseException as error:  # whatever ends a script is its result
        record.status = RAISED
        record.error = f"{type(error).__name__}: {error}"
        record.stack = _stack(error, folder)
    record.facts += _facts(configuration)
    _write(record, folder, rank)
    while True:  # or the other ranks would see the connection end
        signal.pause()


def _settle(folder: Path, configuration: Configuration, rank: int, port: int) -> None:
    os.chdir(folder / "cwd")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name in (1, "out"), (2, "err"):
        os.dup2(os.open(folder / f"{rank}.{name}", os.O_CREAT | os.O_WRONLY | os.O_APPEND), number)
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS + 5))
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    os.environ.clear()
    os.environ.update(kept, OMP_NUM_THREADS="1", TORCHDYNAMO_DISABLE="1", COLUMNS="100")
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder / "tmp")
    if configuration.launched:
        os.environ.update(launcher_environment(rank, configuration.ranks, port))
        os.environ["LOCAL_RANK"] = str(rank % configuration.local_ranks)
        os.environ["LOCAL_WORLD_SIZE"] = str(configuration.local_ranks)
        os.environ["GROUP_RANK"] = str(rank // configuration.local_ranks)
        os.environ["GROUP_WORLD_SIZE"] = str(configuration.nodes)
    for name, value in configuration.environment:
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    others = [p for p in sys.path if p and p != os.fspath(_ROOT)]
    sys.path[:] = [str(folder / "cwd"), str(folder / "cwd/src"), *others, os.fspath(_STAND_INS)]
    random.seed(0)
    torch.manual_seed(0)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(0)


def _stand_in_data() -> None:
    """Let a script load a file that is not there: batches of tokens."""
    original = torch.load

    @functools.wraps(original)
    def load(file: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(file, str) and file.endswith(".pt") and not Path(file).exists():
            made = torch.Generator().manual_seed(len(file))
            return torch.randint(64, (6, 4, 8), generator=made)
        return original(file, *args, **kwargs)

    vars(torch)["load"] = load


def _watch(record: Rank, configuration: Configuration, local_rank: int, output: Path) -> None:
    MACHINE.local_rank = local_rank
    if configuration.cuda and configuration.launched:
        spawn.install(local_rank, configuration.devices)
    _stand_in_data()
    _watch_losses(record, output)
    _watch_steps(record, configuration)
    _watch_samplers(record)


def _watch_losses(record: Rank, output: Path) -> None:
    original = torch.autograd.backward

    @functools.wraps(original)
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
        if not record.losses:
            sys.stdout.flush()
            record.early = output.read_text(errors="replace").count("\n")
        loss = tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors), None)
        if loss is not None and loss.numel() == 1:
            record.losses.append(float(access.local(loss)))
        original(tensors, *args, **kwargs)

    torch.autograd.backward = backward


def _watch_steps(record: Rank, configuration: Configuration) -> None:
    def after(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if prepares_state():
            return
        held = (p for group in optimizer.param_groups for p in group["params"])
        record.steps.append([_summary(p) for p in held])
        if len(record.steps) == 1:
            record.facts += _facts(configuration)
        if len(record.steps) >= STEPS:
            raise Finished

    register_optimizer_step_post_hook(after)


def _summary(parameter: torch.Tensor) -> tuple[str, float, float]:
    part = access.local(parameter).detach()
    wide = part.double()
    return digest(part), float(wide.sum()), float(torch.linalg.vector_norm(wide))


def _watch_samplers(record: Rank) -> None:
    original = DistributedSampler.__iter__

    def iterate(self: DistributedSampler[Any]) -> Iterator[Any]:
        if self.shuffle:
            record.facts.append("shuffled")
        return original(self)

    _set(DistributedSampler, "__iter__", iterate)


def _set(owner: type[Any], name: str, value: Callable[..., Any]) -> None:
    setattr(owner, name, value)


def _facts(configuration: Configuration) -> list[str]:
    found = ["several ranks"] if configuration.ranks > 1 else []
    units = (FSDPModule, FullyShardedDataParallel)
    if any(issubclass(type(one), units) for one in gc.get_objects()):
        found += ["fsdp", "sharded"] if configuration.ranks > 1 else ["fsdp"]
    return found


def _stack(error: BaseException, folder: Path) -> list[tuple[str, int, str]]:
    """Return the statements of the program's own in a traceback."""
    root = f"{folder / 'cwd'}{os.sep}"
    found = []
    for frame in traceback.extract_tb(error.__traceback__):
        path = str(Path.cwd() / frame.filename)
        if path.startswith(root) and not frame.filename.startswith("<"):
            line = _first_line(Path(path), frame.lineno or 0)
            found.append((path.removeprefix(root), line, frame.name))
    return found


def _first_line(path: Path, line: int) -> int:
    """Return where the statement begins that a line is in."""
    nodes = ast.walk(ast.parse(path.read_bytes()))
    statements = (node for node in nodes if isinstance(node, ast.stmt))
    around = (s.lineno for s in statements if s.lineno <= line <= (s.end_lineno or line))
    return max(around, default=line)


def _write(record: Rank, folder: Path, rank: int) -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()
    record.error = _plain(record.error, folder)[:600]
    output = _plain((folder / f"{rank}.out").read_text(errors="replace"), folder)
    record.lines = output.splitlines()[:_LINES]
    record.facts = sorted(set(record.facts))
    (folder / f"{rank}.new").write_text(json.dumps(record.as_json()))
    (folder / f"{rank}.new").rename(folder / f"{rank}.json")


def _plain(text: str, folder: Path) -> str:
    """Return a text without what is different in every run."""
    return _ADDRESS.sub("0x…", text.replace(str(folder), "…"))
