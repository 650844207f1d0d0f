"""A process that lowers files for another one: see `fsdplint.engine.frontend.parallel`.

For each line that it reads it writes one, the row of `IRCache` for the file. It ends when its input
does, and so with the process that started it, however that ends.
"""

from __future__ import annotations

import json
import signal
import sys

from fsdplint.engine.frontend.ir_cache import IRCache
from fsdplint.engine.frontend.lower import lower
from fsdplint.files.invalid import InvalidSyntax, TooDemanding
from fsdplint.process.stack import deep


def main() -> None:
    # An interrupt is for who started it, who then closes the input.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    deep(_serve)


def _serve() -> None:
    for line in sys.stdin:
        print(_row(json.loads(line)), flush=True)


def _row(text: str) -> str:
    """By what a file is known, and what its top level is lowered to; empty if it cannot be."""
    ir_cache = IRCache({})
    try:
        lower(text, "", ir_cache)
    except (InvalidSyntax, TooDemanding):  # which the other process finds, and tells
        return ""
    return " ".join(*ir_cache.used.items()) if ir_cache.used else ""
