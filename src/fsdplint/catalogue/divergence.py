"""Rank divergence: what only some ranks do, so that the others wait."""

from __future__ import annotations

from fsdplint.finding import Safety, Severity
from fsdplint.rule import Rule, declare

RULES: tuple[Rule, ...] = (
    declare(
        "collective-under-rank-guard",
        "FSD601",
        summary="a collective is reached by some ranks only",
        severity=Severity.ERROR,
        fix=Safety.UNSAFE,
        since="0.1.0",
        clause="collectives",
    ),
    declare(
        "join-with-fsdp",
        "FSD602",
        summary="`Join` is given a sharded model, or something else that it cannot join",
        severity=Severity.ERROR,
        fix=Safety.UNSAFE,
        since="0.1.0",
        clause=None,
    ),
)
