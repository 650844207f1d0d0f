"""Other processes that run code of ours, and nothing else."""

from __future__ import annotations

import sys

# The path is the very one of this process, which holds no folder of the user's.
_CODE = "import sys; sys.path[:] = {path!r}; from {module} import main; main()"


def command(module: str) -> list[str]:
    """Return the command that starts a Python process with ``main`` of one of our modules.

    It is isolated, so that no variable has anything run before the path is set.
    """
    return [sys.executable, "-I", "-c", _CODE.format(path=sys.path, module=module)]
