"""Forks of a process that has torch loaded: each becomes one rank, in a process group of its own.

Importing torch and FSDP costs a rank seconds; a fork of a warm, single-threaded process costs a
third of one.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn


@contextmanager
def reserved_port() -> Iterator[int]:
    """Keeps a port of this machine for the ranks' store as long as the context lasts.

    A bound socket that never listens keeps the port from everyone but a rank that asks for this
    very port with SO_REUSEADDR, as torch's TCPStore does.
    """
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        yield reserved.getsockname()[1]


def launcher_environment(rank: int, world_size: int, port: int) -> dict[str, str]:
    """Returns what torchrun would set in one rank of one node (torch 2.13)."""
    ranks = {name: str(rank) for name in ("RANK", "LOCAL_RANK", "ROLE_RANK")}
    sizes = {
        name: str(world_size) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE")
    }
    return {
        **ranks,
        **sizes,
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": str(port),
    }


def fork(body: Callable[[], NoReturn]) -> int:
    """Forks a process that runs `body`, which ends it, and returns its id."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setpgid(0, 0)
            body()
        finally:
            os._exit(1)
    with suppress(ProcessLookupError):
        os.setpgid(pid, pid)
    return pid


def has_ended(pid: int) -> bool:
    """Says whether a child waits to be reaped."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def reap(pid: int) -> int:
    """Ends a child and whatever it started, by force; returns its exit status, or the negative
    number of the signal that killed it.

    The group goes first: while its leader is a zombie, no other process can take its id.
    """
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
