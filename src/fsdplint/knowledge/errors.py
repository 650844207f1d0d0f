"""Errors of sharded programs that no rule can tell from the code.

Source: `tests/test_known_errors.py` raises those that a CPU can raise, with torch 2.13. The others
were pasted in public threads, which the table names; torch or the library says them as it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fsdplint.toml import loads

_TABLE = Path(__file__).with_name("errors.toml")


@dataclass(frozen=True, slots=True)
class KnownError:
    """An error with its cause and cure.

    Attributes:
        message: what is raised; ``…`` stands for what varies.
        near: texts of which a log has one where this is the cause; none where any log will do.
        last: it says that something failed, but not what.
    """

    message: str
    cause: str
    cure: str
    near: tuple[str, ...] = ()
    last: bool = False


@cache
def known() -> tuple[KnownError, ...]:
    """Return all of them."""
    rows = loads(_TABLE.read_text("utf-8"))["error"]
    return tuple(
        KnownError(
            row["message"],
            row["cause"],
            row["cure"],
            tuple(row.get("near", ())),
            row.get("last", False),
        )
        for row in rows
    )
