"""The entry point: print a cached report at once, or else start the command line."""

from __future__ import annotations

import sys

from fsdplint.cache.replay import replay
from fsdplint.process.streams import tolerate_any_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def main() -> NoReturn:
    """Run the command of the process's arguments and end the process with its exit code."""
    tolerate_any_text()
    try:
        code = replay(sys.argv[1:])
    except (KeyboardInterrupt, OSError) as error:
        from fsdplint.cli.main import failed

        code = failed(error)
    if code is None:
        from fsdplint.cli.main import main as run

        run()
    sys.exit(code)
