"""``torch.distributed.run`` as verify starts it: torch's launcher, ended with its parent.

It is started by path, so its own folder leads `sys.path`: that entry goes before all imports.
"""

import sys

if __name__ == "__main__":
    del sys.path[0]

import os
import runpy
import subprocess
from pathlib import Path
from typing import Any

from fsdplint.verify import deaths, lifeline
from fsdplint.verify.request import REQUEST_VARIABLE


class Rank(subprocess.Popen[bytes]):
    """A process that the launcher starts; notes how it ended as soon as that is known."""

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
            deaths.note(Path(os.environ[REQUEST_VARIABLE]), int(self._rank), status)


if __name__ == "__main__":
    lifeline.follow(Path(os.environ[REQUEST_VARIABLE]))
    subprocess.Popen = Rank  # type: ignore[assignment, misc]  # before torch imports it
    runpy.run_module("torch.distributed.run", run_name="__main__", alter_sys=True)
