"""Files that are not Python, which `check` reports as it reads them."""

from __future__ import annotations

from fsdplint.finding import Severity
from fsdplint.rule import declare

RULE = declare(
    __name__,
    "FSD001",
    summary="a file is not valid Python",
    severity=Severity.ERROR,
    fix=None,
    since="0.1.0",
)
