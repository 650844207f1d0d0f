"""Where the analysis of a program stopped early, so that findings may be missing."""

from __future__ import annotations

from dataclasses import dataclass

# The entry that is the top level of a file.
TOP_LEVEL = "<module>"


@dataclass(frozen=True, slots=True, order=True)
class EarlyStop:
    """One reason for which part of a program was not analyzed.

    Attributes:
        path: the absolute path of the file that the entry is in.
        entry: where the program starts: a function, ``Class.method`` or `TOP_LEVEL`.
        reason: what stopped the analysis, as a noun phrase or a clause.
    """

    path: str
    entry: str
    reason: str
