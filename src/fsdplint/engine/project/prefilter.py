"""Which files can shard, by their text alone; a module that is fast to import."""

from __future__ import annotations

from fsdplint.knowledge.calls import SHARDING_NAMES


def mentions_sharding(text: str) -> bool:
    """True if a file can contain a sharding call: without its name there is none."""
    return any(name in text for name in SHARDING_NAMES)
