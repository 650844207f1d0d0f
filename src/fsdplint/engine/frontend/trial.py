"""Text near the limits is parsed by another process first, where a crash loses nothing else.

There it may take as much time and memory as a file gets. `main` is what that process runs.
"""

from __future__ import annotations

import sys
from contextlib import suppress

from fsdplint.files.invalid import InvalidSyntax, TooDemanding
from fsdplint.process.child import command

_CPU_SECONDS = 60
_BYTES = 3 * 2**30  # of address space, the stack and LibCST itself included
_ENCODING = "utf-8", "surrogatepass"


def expect_survived(text: str) -> None:
    """Return if another process parsed ``text``, or refused it as this one will.

    Raises:
        TooDemanding: it crashed, or took more than a file gets.
    """
    from subprocess import DEVNULL, run  # slow to import

    try:
        done = run(
            command(__name__),
            input=text.encode(*_ENCODING),
            stdout=DEVNULL,
            stderr=DEVNULL,
            check=False,
        )
    except (OSError, TypeError, ValueError):  # no more, or no Python to start: the limits must do
        return
    if done.returncode:
        raise TooDemanding("crashes the parser, or takes it more time or memory than a file gets")


def main() -> None:
    from fsdplint.process.stack import deep

    _limit()
    text = sys.stdin.buffer.read().decode(*_ENCODING)
    deep(lambda: _try(text))


def _limit() -> None:
    with suppress(ImportError):  # not on Windows
        import resource

        for kind, most in ((resource.RLIMIT_CPU, _CPU_SECONDS), (resource.RLIMIT_AS, _BYTES)):
            with suppress(OSError, ValueError):  # a lower one holds, or the system has none
                resource.setrlimit(kind, (most, most))


def _try(text: str) -> None:
    from fsdplint.engine.frontend.syntax import parsed

    with suppress(InvalidSyntax, RecursionError):  # which the other process finds, and tells
        parsed(text)
