"""``torch.distributed.run`` as verify starts it: torch's launcher, ended with its parent.

The process that verify starts keeps the launcher's, and with it all that ranks start: it ends what
is left when the launcher ends, on SIGTERM, and when verify is gone.
It is started by path, so its own folder leads `sys.path`: that entry goes before all imports.
"""

import sys

if __name__ == "__main__":
    del sys.path[0]

import os
import runpy
import signal
import subprocess
from pathlib import Path
from typing import Any, NoReturn

from fsdplint.verify.processes import adopt_orphans, end_descendants, follow_lifeline, note_death
from fsdplint.verify.request import REQUEST_VARIABLE


class Rank(subprocess.Popen[bytes]):
    """A process that the launcher starts; it records how it ended as soon as that is known."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._rank = (kwargs.get("env") or {}).get("RANK")
        super().__init__(*args, **kwargs)

    @property
    def returncode(self) -> int | None:
        return self._status

    @returncode.setter
    def returncode(self, status: int | None) -> None:
        self._status = status
        if status is not None and self._rank is not None:
            note_death(Path(os.environ[REQUEST_VARIABLE]), int(self._rank), status)


def _launch(folder: Path) -> None:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    follow_lifeline(folder)
    subprocess.Popen = Rank  # type: ignore[assignment, misc]  # before torch imports it
    runpy.run_module("torch.distributed.run", run_name="__main__", alter_sys=True)


def _keep(launcher: int, folder: Path) -> NoReturn:
    follow_lifeline(folder, end_descendants)
    while True:
        pid, status = os.wait()
        if pid == launcher:
            _leave(os.waitstatus_to_exitcode(status) != 0)


def _leave(status: int, *_: object) -> NoReturn:
    end_descendants()
    os._exit(status)


if __name__ == "__main__":
    records = Path(os.environ[REQUEST_VARIABLE])
    adopt_orphans()
    signal.signal(signal.SIGTERM, _leave)
    if launcher := os.fork():
        _keep(launcher, records)
    _launch(records)
