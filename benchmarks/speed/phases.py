"""Where the CPU time of one `fsdplint check` goes, printed by a process that does it.

    python -m benchmarks.speed.phases FILE

A phase's time is that without the phases inside of it. The interpreter's is what has passed before
the first import.
"""

from __future__ import annotations

import time

_BORN = time.process_time()

import contextlib  # noqa: E402 - not before the interpreter's own time is known, here and below
import importlib  # noqa: E402
import io  # noqa: E402
import sys  # noqa: E402
from collections.abc import Callable, Iterator  # noqa: E402
from typing import Any  # noqa: E402

# Modules that a check comes to import, and the functions that do a phase's work.
_OURS = ("fsdplint.cli.main", "fsdplint.engine.program", "fsdplint.run_rules", "fsdplint.rules")
_PHASES = {
    "parse (libcst.parse_module)": "libcst.parse_module",
    "positions": "fsdplint.engine.frontend.syntax.parsed",
    "lower": "fsdplint.engine.project.project.lower",
    "relevance": "fsdplint.engine.program.related_units",
    "paths": "fsdplint.engine.program.explore",
    "rules": "fsdplint.run_rules.judge",
    "the rest: settings, reading, report": "fsdplint.cli.main.main",
}


class Clock:
    """CPU seconds by phase; of phases in one another each has its own."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.inner = 0.0  # of the phases inside of the current one, so far

    def timed(self, phase: str, work: Callable[..., Any]) -> Callable[..., Any]:
        """``work``, its time taken for ``phase``."""

        def run(*args: object, **options: object) -> object:
            outside, self.inner = self.inner, 0.0
            began = time.process_time()
            try:
                result = work(*args, **options)
                return iter([*result]) if isinstance(result, Iterator) else result
            finally:
                whole = time.process_time() - began
                self.seconds[phase] = self.seconds.get(phase, 0.0) + whole - self.inner
                self.inner = outside + whole

        return run


def main() -> None:
    clock = Clock()
    clock.seconds["interpreter"] = _BORN
    clock.timed("import libcst", importlib.import_module)("libcst")
    for module in _OURS:
        clock.timed("import fsdplint", importlib.import_module)(module)
    for phase, name in _PHASES.items():
        module, _, function = name.rpartition(".")
        holder = importlib.import_module(module)
        setattr(holder, function, clock.timed(phase, getattr(holder, function)))
    check = importlib.import_module("fsdplint.cli.main").main
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        check(["check", "--isolated", *sys.argv[1:]])
    total = time.process_time()
    for phase, seconds in clock.seconds.items():
        print(f"{phase:36} {seconds * 1000:8.0f} ms  {100 * seconds / total:4.0f} %")
    print(f"{'in all':36} {total * 1000:8.0f} ms")


if __name__ == "__main__":
    main()
