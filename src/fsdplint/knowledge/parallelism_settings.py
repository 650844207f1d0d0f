"""The settings in `parallelism_config` of accelerate's config files: which are read, and when.

The table is measured: `scripts/parallelism_settings.py` has each release read config files and
compares what the launcher hands to the ranks.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from pathlib import Path

from fsdplint.knowledge.accelerate_settings import PARALLELISM, Settings, read

_TABLE = Path(__file__).with_name("parallelism_settings.csv")

PREFIX = f"{PARALLELISM}_"
REPLICATE = f"{PREFIX}dp_replicate_size"
SHARD = f"{PREFIX}dp_shard_size"
TENSOR = f"{PREFIX}tp_size"
CONTEXT = f"{PREFIX}cp_size"
SEQUENCE = f"{PREFIX}sp_size"
# Of accelerate's mesh, whose size is their product; each is 1 where it is not given.
SIZES = (REPLICATE, SHARD, TENSOR, CONTEXT, SEQUENCE)


@cache
def settings() -> tuple[Settings, ...]:
    """Return the settings of each release that takes the section, the oldest first."""
    return read(_TABLE)


def of(releases: Collection[Settings]) -> tuple[Settings, ...]:
    """Return what releases of accelerate do; nothing if one of them does not take the section."""
    wanted = {each.release for each in releases}
    found = tuple(each for each in settings() if each.release in wanted)
    return found if len(found) == len(wanted) else ()
