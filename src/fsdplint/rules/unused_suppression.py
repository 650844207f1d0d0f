"""Comments that suppress nothing, which `suppression` reports once all rules have run."""

from __future__ import annotations

from fsdplint.finding import Safety, Severity
from fsdplint.rule import declare

RULE = declare(
    __name__,
    "FSD002",
    summary="a suppression comment has no finding to suppress",
    severity=Severity.WARNING,
    fix=Safety.SAFE,
    since="0.1.0",
)
