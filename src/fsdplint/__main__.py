"""``python -m fsdplint``."""

import os
import sys


def _forget_working_directory() -> None:
    """Take out what ``-m`` puts first on the path: a ``types.py`` or ``click.py`` of the user's
    would run there in the place of the module that is meant.
    """
    try:
        here = os.getcwd()  # noqa: PTH109  # pathlib is not imported before the path is mended
    except OSError:  # it is gone
        here = ""
    if sys.path[0] in ("", here):
        del sys.path[0]


if __name__ == "__main__":
    _forget_working_directory()

    from fsdplint.start import main

    main()
