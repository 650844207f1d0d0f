"""Checkpoints and state: what is saved and loaded of a sharded model."""

from __future__ import annotations

from fsdplint.finding import Safety, Severity
from fsdplint.rule import Rule, declare

RULES: tuple[Rule, ...] = (
    declare(
        "sharded-state-saved",
        "FSD501",
        summary="a state dict of DTensor shards is written as if it were the model",
        severity=Severity.ERROR,
        fix=Safety.UNSAFE,
        since="0.1.0",
        clause="saves",
    ),
    declare(
        "optimizer-state-saved-raw",
        "FSD502",
        summary="a sharded model's optimizer state is written or loaded as one file",
        severity=Severity.ERROR,
        fix=Safety.UNSAFE,
        since="0.1.0",
        clause="saves",
    ),
    declare(
        "full-state-dict-into-sharded-model",
        "FSD503",
        summary="a plain state dict is loaded into a model that FSDP2 has sharded",
        severity=Severity.ERROR,
        fix=Safety.UNSAFE,
        since="0.1.0",
        clause=None,
        preview="its one finding on real code was wrong, which is mended; none was right yet.",
    ),
    declare(
        "fresh-optimizer-in-dcp-load",
        "FSD504",
        summary="a distributed checkpoint's load restores no state of a model or an optimizer",
        severity=Severity.ERROR,
        fix=Safety.UNSAFE,
        since="0.1.0",
        clause=None,
    ),
    declare(
        "save-guarded-by-local-rank",
        "FSD505",
        summary="one process of each node writes the same file",
        severity=Severity.WARNING,
        fix=Safety.UNSAFE,
        since="0.1.0",
        clause=None,
    ),
    declare(
        "save-without-gathered-state",
        "FSD506",
        summary="`save_pretrained` of a sharded model is not given the gathered state",
        severity=Severity.ERROR,
        fix=Safety.UNSAFE,
        since="0.1.0",
        clause=None,
    ),
)
