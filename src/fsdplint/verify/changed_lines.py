"""How many of the lines that a migration adds were executed in a run."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from types import CodeType

from fsdplint.verify.events import LinesRan
from fsdplint.verify.evidence import Run


def added(before: bytes, after: bytes) -> frozenset[int]:
    """Return the lines of a module that it did not have `before`, if Python executes them.

    Raises:
        SyntaxError: `after` is no module.
    """
    old, new = before.splitlines(), after.splitlines()
    changes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    lines = {
        at + 1 for kind, _, _, start, end in changes if kind != "equal" for at in range(start, end)
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        code = compile(after, "<migrated>", "exec", dont_inherit=True)
    return frozenset(lines.intersection(_executed(code)))


def _executed(code: CodeType) -> Iterator[int]:
    for _, _, line in code.co_lines():
        if line:
            yield line
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _executed(constant)


def how_many_ran(run: Run, wanted: Mapping[str, frozenset[int]]) -> str:
    """Return a sentence on the lines of each file that any rank ran."""
    ran: dict[str, set[int]] = {path: set() for path in wanted}
    for _, event in run.all(LinesRan):
        ran[event.path].update(event.lines)
    missing = {path: sorted(lines - ran[path]) for path, lines in wanted.items()}
    total = sum(map(len, wanted.values()))
    left = sum(map(len, missing.values()))
    if not left:
        return f"changed lines: all {total} ran"
    places = "; ".join(f"{path}:{_ranges(lines)}" for path, lines in missing.items() if lines)
    ended = {rank.ended.how for rank in run.ranks if rank.ended is not None}
    more = " (`--steps all` runs the script to its end)" if "steps" in ended else ""
    return f"changed lines: {total - left} of {total} ran; not run: {places}{more}"


def _ranges(lines: Sequence[int]) -> str:
    """Return sorted numbers with those in a row joined, as in ``3-5, 9``."""
    parts: list[list[int]] = []
    for line in lines:
        if parts and line == parts[-1][-1] + 1:
            parts[-1].append(line)
        else:
            parts.append([line])
    return ", ".join(f"{a}-{b}" if a != b else str(a) for a, *_, b in ([*p, p[-1]] for p in parts))
