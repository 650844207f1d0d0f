"""Precision, memory and communication."""

from __future__ import annotations

from fsdplint.finding import Safety, Severity
from fsdplint.rule import Rule, declare

RULES: tuple[Rule, ...] = (
    declare(
        "fsdp1-policy-object",
        "FSD401",
        summary="a sharding call is given a policy that is not of its FSDP's classes",
        severity=Severity.ERROR,
        fix=Safety.UNSAFE,
        since="0.1.0",
        clause=None,
    ),
    declare(
        "policy-missing-on-root",
        "FSD402",
        summary="blocks and root of a model compute in different precisions, which meet in a layer",
        severity=Severity.ERROR,
        fix=Safety.UNSAFE,
        since="0.1.0",
        clause=None,
    ),
    declare(
        "low-precision-reduce",
        "FSD403",
        summary="gradients of several ranks are added up in a low precision",
        severity=Severity.NOTE,
        fix=Safety.UNSAFE,
        since="0.1.0",
        clause=None,
        preview="it is a choice between precision and communication.",
    ),
    declare(
        "blocks-kept-unsharded",
        "FSD404",
        summary="all blocks stay gathered from the forward to the backward",
        severity=Severity.NOTE,
        fix=Safety.UNSAFE,
        since="0.1.0",
        clause=None,
        preview="it is a choice between memory and communication.",
    ),
)
