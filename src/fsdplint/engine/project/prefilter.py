"""Which files can shard, by their text alone; a module that is fast to import."""

from __future__ import annotations

from fsdplint.knowledge.calls import SHARDING_NAMES, UNIT_NAMES
from fsdplint.knowledge.frameworks import sets_sharding

_NAMES = SHARDING_NAMES | UNIT_NAMES


def mentions_sharding(text: str) -> bool:
    """True if a file can contain a sharding call or setting, or say that something is a unit."""
    return any(name in text for name in _NAMES) or sets_sharding(text)
