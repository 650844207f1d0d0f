"""Migration and old interfaces: FSDP1 on the way to FSDP2."""

from __future__ import annotations

from fsdplint.finding import Safety, Severity
from fsdplint.rule import Rule, declare

RULES: tuple[Rule, ...] = (
    declare(
        "fsdp1-argument-to-fully-shard",
        "FSD701",
        summary="`fully_shard` is given an argument that only FSDP1 takes",
        severity=Severity.ERROR,
        fix=Safety.UNSAFE,
        since="0.1.0",
        clause=None,
    ),
    declare(
        "fsdp1-api-on-fsdp2-model",
        "FSD702",
        summary="something of FSDP1's is asked of a model that FSDP2 shards",
        severity=Severity.ERROR,
        fix=Safety.UNSAFE,
        since="0.1.0",
        clause="fsdp1-calls",
    ),
    declare(
        "old-import-path",
        "FSD703",
        summary="an import that fails on a release of PyTorch the code is meant for",
        severity=Severity.ERROR,
        fix=Safety.SAFE,
        since="0.1.0",
        clause=None,
    ),
)
