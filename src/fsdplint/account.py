"""What became of each file that a run came across."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class State(Enum):
    """The one end that a file comes to.

    Attributes:
        CHECKED: the rules saw it as a part of a program that shards.
        IRRELEVANT: it takes no part in sharding, so that no rule can find anything in it.
        SKIPPED: it was not looked at on purpose.
        FAILED: it could not be looked at, or not wholly.
    """

    CHECKED = "checked"
    IRRELEVANT = "irrelevant"
    SKIPPED = "skipped"
    FAILED = "failed"


_BY_WEIGHT = (State.IRRELEVANT, State.CHECKED, State.SKIPPED, State.FAILED)


@dataclass(frozen=True, slots=True)
class Account:
    """A file's end; ``reason`` is one line without the path, empty where it was checked."""

    path: str
    state: State
    reason: str = ""


def united(accounts: Iterable[Account]) -> tuple[Account, ...]:
    """One account for each file, by path: of several the one that says most."""
    known: dict[str, Account] = {}
    for account in accounts:
        other = known.setdefault(account.path, account)
        known[account.path] = max(other, account, key=lambda a: _BY_WEIGHT.index(a.state))
    return tuple(known[path] for path in sorted(known))
