"""How scripts start their ranks: verify's ranks already exist, so each one runs its part.

`torch.multiprocessing.spawn(fn, args, nprocs)` becomes ``fn(local_rank, *args)`` in every rank,
torchrun's launcher, called as a function, becomes a call of what it launches, and the launcher's
addresses replace those that such scripts set, so that two verifications never meet. A script that
starts a launcher as a program is refused: what that launches can be verified directly.
"""

from __future__ import annotations

import inspect
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import PurePath
from typing import Any

import torch.distributed as dist
import torch.distributed.launcher.api
import torch.multiprocessing

from fsdplint.verify.events import GroupMade, ProcessStarted
from fsdplint.verify.rank.patch import wrap
from fsdplint.verify.rank.registry import Seen
from fsdplint.verify.rank.shim import Unmappable

_LAUNCHER = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
_PROGRAMS = ("torchrun", "accelerate", "deepspeed")
_MODULES = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")
_RAY = ("raylet", "gcs_server")
_STARTS = {"subprocess.Popen": 1, "os.system": 0, "os.exec": 1, "os.posix_spawn": 1}
"""Audit events that start a program, and which of their arguments is the command (Python's audit
events table)."""
_RENDEZVOUS = ("init_method", "store", "rank", "world_size")


class _Ended:
    """A replacement for spawned processes whose work is done."""

    processes = ()

    def join(self, *_: Any, **__: Any) -> bool:
        """Return at once."""
        return True


def install(local_rank: int, local_world_size: int) -> None:
    """Replace ``spawn``, and always join the process group through the launcher's own store."""
    launcher = {name: os.environ[name] for name in _LAUNCHER if name in os.environ}
    signature = inspect.signature(dist.init_process_group)

    def expect(ranks: int) -> None:
        if ranks != local_world_size:
            raise Unmappable(
                f"the script spawns {ranks} ranks, but verify started {local_world_size}: "
                f"pass --nproc {ranks}"
            )

    def spawn(
        original: Any, fn: Callable[..., None], args: Any = (), nprocs: int = 1, *_: Any, **__: Any
    ) -> Any:
        if dist.is_initialized():  # this rank's helpers, not the ranks
            return original(fn, args, nprocs, *_, **__)
        expect(nprocs)
        fn(local_rank, *args)
        return _Ended()

    def launch_agent(
        _: Any, config: Any, entrypoint: Any, args: list[Any], *__: Any, **___: Any
    ) -> dict[int, Any]:
        if not callable(entrypoint):
            raise _launches([str(entrypoint), *map(str, args)])
        expect(config.nproc_per_node)
        return {local_rank: entrypoint(*args)}

    def init_process_group(original: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        os.environ.update(launcher)
        given = signature.bind(*args, **kwargs).arguments
        original(**{name: value for name, value in given.items() if name not in _RENDEZVOUS})

    def refuse_launchers(event: str, arguments: tuple[Any, ...]) -> None:
        for words in _commands(arguments[_STARTS[event]]) if event in _STARTS else ():
            if _is_launcher(words):
                raise _launches(words)
            if words and PurePath(words[0]).name in _RAY:
                raise Unmappable(
                    "the script starts Ray, whose workers verify cannot observe: set "
                    "`num_workers=0` to run Ray Train on verify's ranks, or run verify on a script "
                    "that calls the workers' function on each rank"
                )

    for name in ("spawn", "start_processes"):
        wrap(torch.multiprocessing, name, spawn)
    wrap(torch.distributed.launcher.api, "launch_agent", launch_agent)
    wrap(dist, "init_process_group", init_process_group)
    sys.addaudithook(refuse_launchers)


def _commands(given: Any) -> Iterator[list[str]]:
    """Yield the words of each command in what a process is started with, which may be a shell."""
    if isinstance(given, str | bytes | os.PathLike):
        text = os.fsdecode(given)
    else:
        words = [os.fsdecode(word) for word in given or ()]
        if "-c" not in words[1:2] or not words[0].endswith("sh"):
            yield _without_prefix(words)
            return
        text = words[2] if len(words) > 2 else ""
    for part in re.split(r"&&|\|\||[;|\n]", text):
        with suppress(ValueError):
            yield _without_prefix(shlex.split(part))


def _without_prefix(words: list[str]) -> list[str]:
    """Leave out what sets a command's environment."""
    while words and (words[0] in ("env", "exec", "nohup") or re.match(r"\w+=", words[0])):
        words = words[1:]
    return words


def _is_launcher(words: list[str]) -> bool:
    """True if a command starts ranks by torchrun or what stands for it."""
    if not words:
        return False
    name = PurePath(words[0]).name
    if name == "accelerate":
        return words[1:2] == ["launch"]
    return name in _PROGRAMS or (
        name.startswith("python") and any(word in _MODULES for word in words[1:4])
    )


def _launches(words: list[str]) -> Unmappable:
    script = next((word for word in words[1:] if word.endswith(".py")), "")
    advice = f": run verify on {script} directly, with its arguments after --" if script else ""
    return Unmappable(f"the script launches its ranks with `{shlex.join(words)}`{advice}")


def note_processes(seen: Seen) -> None:
    """Note the processes that run a function of the script's."""
    note = seen.recorder.probe("processes")(_note_process)

    def start(original: Callable[..., None], process: Any) -> None:
        note(seen, process)
        original(process)

    wrap(BaseProcess, "start", start)


def _note_process(seen: Seen, process: Any) -> None:
    code = getattr(process._target, "__code__", None)
    if code is not None and seen.recorder.owns(code.co_filename):
        seen.write(ProcessStarted(process._target.__name__, seen.place()))


def note_group(seen: Seen) -> None:
    """Note the process group that the script asks for, whatever the launcher enforces."""
    signature = inspect.signature(dist.init_process_group)
    note = seen.recorder.probe("group")(_note)

    def init_process_group(original: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        original(*args, **kwargs)
        note(seen, signature.bind(*args, **kwargs).arguments)

    wrap(dist, "init_process_group", init_process_group)


def _note(seen: Seen, asked: dict[str, Any]) -> None:
    rank, size = asked.get("rank", -1), asked.get("world_size", -1)
    seen.write(
        GroupMade(
            _backend(),
            rank if rank not in (-1, None) else int(os.environ["RANK"]),
            size if size not in (-1, None) else int(os.environ["WORLD_SIZE"]),
            seen.place(),
        )
    )


def _backend() -> str:
    """Return e.g. ``nccl``; for a group with several backends, e.g. ``gloo/nccl``."""
    name = dist.get_backend()
    if name != "undefined":
        return name
    pairs = str(dist.get_backend_config()).split(",")
    return "/".join(sorted({pair.rpartition(":")[2] for pair in pairs}))
