"""``python -m fsdplint``."""

import os
import sys


def _forget_working_directory() -> None:
    """Remove the working directory, which ``-m`` puts first, from the path.

    A ``types.py`` or ``click.py`` of the user's would otherwise run instead of the real module.
    """
    try:
        here = os.getcwd()  # noqa: PTH109  # pathlib is not imported before the path is mended
    except OSError:  # it was deleted
        here = ""
    if sys.path[0] in ("", here):
        del sys.path[0]


if __name__ == "__main__":
    _forget_working_directory()

    from fsdplint.start import main

    main()
