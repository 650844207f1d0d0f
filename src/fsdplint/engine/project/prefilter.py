"""Which files can take part in sharding, told from their text alone."""

from __future__ import annotations

from fsdplint.knowledge.calls import SHARDING_NAMES


def mentions_sharding(text: str) -> bool:
    """Whether a file can hold a sharding call at all: one without their names shards nothing."""
    return any(name in text for name in SHARDING_NAMES)
