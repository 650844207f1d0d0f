"""Start `fsdplint` as a process of its own without the imports, which take most of a short test.

A parent process per pytest process has imported the modules, and forks for each command. A relay
stands in for the command: it passes its streams to the fork and ends with its exit code.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    del sys.path[0]  # the tests' folder

import json
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

_MOST = 1 << 20
"""Bytes of a command's arguments and environment."""
_started: str | None = None


def command(*arguments: str) -> list[str]:
    """The command that runs `fsdplint` with these arguments in a fork."""
    return [sys.executable, "-IS", __file__, "relay", _path(), *arguments]


def _path() -> str:
    """Return the socket of the parent process, which is started once and ends with this one."""
    global _started
    if _started is None:
        import subprocess
        import tempfile

        _started = str(Path(tempfile.mkdtemp(prefix="forked-")) / "socket")
        parent = [sys.executable, __file__, "parent", _started]
        # Its input ends with this process.
        process = subprocess.Popen(parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    return _started


def _relay(path: str, arguments: list[str]) -> int:
    with socket.socket(socket.AF_UNIX) as to_parent:
        to_parent.connect(path)
        start = json.dumps([arguments, str(Path.cwd()), dict(os.environ)]).encode()
        socket.send_fds(to_parent, [len(start).to_bytes(4, "big") + start], [0, 1, 2])
        # Others see the end of the streams when the fork closes them.
        for stream in (0, 1, 2):
            os.close(stream)
        return int.from_bytes(to_parent.recv(1), "big")


def _parent(path: str) -> None:
    import gc
    import importlib
    import select

    from fsdplint.check import check_text

    importlib.import_module("fsdplint.server.startup")
    check_text(_SHARDS)
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        os.write(1, b"ready\n")
        while listening in select.select([0, listening], [], [])[0]:
            connection = listening.accept()[0]
            with connection:
                if not (child := os.fork()):
                    _kept(connection)
            os.waitpid(child, 0)
    Path(path).unlink()
    Path(path).parent.rmdir()


_SHARDS = """\
import torch
from torch.distributed.fsdp import fully_shard

fully_shard(torch.nn.Linear(1, 1))
"""


def _kept(connection: socket.socket) -> NoReturn:
    """Fork the command from a process that waits for it, and that nobody waits for."""
    if os.fork():
        os._exit(0)
    data, streams, _, _ = socket.recv_fds(connection, _MOST, 3)
    size = int.from_bytes(data[:4], "big")
    while len(data) < size + 4:
        data += connection.recv(_MOST)
    arguments, folder, environment = json.loads(data[4:])
    if not (child := os.fork()):
        _run(streams, arguments, folder, environment)
    for stream in streams:
        os.close(stream)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    connection.sendall(bytes([code % 256]))
    os._exit(0)


def _run(
    streams: list[int], arguments: list[str], folder: str, environment: dict[str, str]
) -> NoReturn:
    from fsdplint.start import main

    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin, sys.stdout, sys.stderr = (os.fdopen(n, mode) for n, mode in enumerate("rww"))
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["fsdplint", *arguments]
    try:
        main()
    except SystemExit as end:
        with suppress(ValueError):  # it may have closed it
            sys.stdout.flush()
        os._exit(end.code if isinstance(end.code, int) else 1)


if __name__ == "__main__":
    if sys.argv[1] == "relay":
        sys.exit(_relay(sys.argv[2], sys.argv[3:]))
    _parent(sys.argv[2])
