"""Which libraries anything is known of; calls of the others are calls of unknown code."""

from __future__ import annotations

from fsdplint.knowledge.calls import (
    CALLS_FIRST_ARGUMENT,
    PLAIN_WRITES,
    REPOINTING_CALLS,
    is_harmless,
)
from fsdplint.knowledge.names import offers_optimizers


def is_known_package(package: str) -> bool:
    """Whether the engine knows what calls of a top-level package do, or that they do no harm."""
    return is_harmless(package) or package in _NAMED or offers_optimizers(package)


_NAMED = frozenset(
    name.split(".")[0] for name in (*CALLS_FIRST_ARGUMENT, *PLAIN_WRITES, *REPOINTING_CALLS)
)
