"""The rules in the order of their codes, and one module for each with what it finds."""

from __future__ import annotations

from fsdplint.catalogue import (
    checkpoints,
    data,
    divergence,
    launch,
    migration,
    precision,
    sharding,
    tool,
    training,
)
from fsdplint.rule import Rule

RULES: tuple[Rule, ...] = (
    *tool.RULES,
    *launch.RULES,
    *sharding.RULES,
    *training.RULES,
    *precision.RULES,
    *checkpoints.RULES,
    *divergence.RULES,
    *migration.RULES,
    *data.RULES,
)
