"""A file without what its functions do, which is most of it and mostly never run."""

from __future__ import annotations

from fsdplint.files.blocks import blocks, code_only

Span = tuple[int, int]

_MIN_SUITE = 120  # characters below which parsing a suite apart takes longer


def without_suites(text: str) -> tuple[str, dict[int, Span]]:
    """``text`` with a name of the same length in the place of each outermost function's suite.

    Returns:
        The text, and by the offset of each name what it stands for: from the first line of the
        suite, indented, to the end of its last statement.
    """
    parts: list[str] = []
    suites: dict[int, Span] = {}
    at = 0
    for block in blocks(code_only(text)):
        suite = block.suite
        if block.kind != "def" or suite is None or suite < at or block.end - suite < _MIN_SUITE:
            continue
        start = block.end - len(text[suite : block.end].lstrip(" \t\f"))
        parts += [text[at:start], "_" * (block.end - start)]
        suites[start] = suite, block.end
        at = block.end
    return "".join([*parts, text[at:]]), suites
