"""``torch.distributed.run`` as verify starts it: torch's launcher, ended with its parent.

It is started by path, so its own folder leads `sys.path`: that entry goes before all imports.
"""

import sys

if __name__ == "__main__":
    del sys.path[0]

import os
import runpy
from pathlib import Path

from fsdplint.verify import lifeline
from fsdplint.verify.request import REQUEST_VARIABLE

if __name__ == "__main__":
    lifeline.follow(Path(os.environ[REQUEST_VARIABLE]))
    runpy.run_module("torch.distributed.run", run_name="__main__", alter_sys=True)
