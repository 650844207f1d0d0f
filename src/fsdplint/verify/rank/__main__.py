"""The program of one rank: observer first, then the unmodified script as ``__main__``.

It is started by path, so its own folder leads `sys.path`: that entry goes before all imports.
"""

import sys
import time

_BEGAN = time.perf_counter()
if __name__ == "__main__":
    del sys.path[0]

from fsdplint.verify.rank.life import live  # noqa: E402  -- the path is cleaned first

if __name__ == "__main__":
    live(_BEGAN)
