"""Data: what each rank is fed."""

from __future__ import annotations

from fsdplint.finding import Safety, Severity
from fsdplint.rule import Rule, declare

RULES: tuple[Rule, ...] = (
    declare(
        "same-data-on-every-rank",
        "FSD801",
        summary="every rank trains a sharded model on the same batches",
        severity=Severity.ERROR,
        fix=Safety.UNSAFE,
        since="0.1.0",
        clause=None,
        preview="of its three findings on real code two were wrong, which is mended.",
    ),
    declare(
        "epoch-not-set",
        "FSD802",
        summary="a distributed sampler shuffles every epoch alike",
        severity=Severity.WARNING,
        fix=Safety.SAFE,
        since="0.1.0",
        clause=None,
    ),
)
