"""The tool: rules that no fact of a program raises."""

from __future__ import annotations

from fsdplint.finding import Safety, Severity
from fsdplint.rule import Rule

INVALID_SYNTAX = Rule(
    "invalid-syntax",
    "FSD001",
    "a file is not valid Python",
    Severity.ERROR,
    None,
    "0.1.0",
)
UNUSED_SUPPRESSION = Rule(
    "unused-suppression",
    "FSD002",
    "a comment silences a finding that is not there",
    Severity.WARNING,
    Safety.SAFE,
    "0.1.0",
)
RULES: tuple[Rule, ...] = (INVALID_SYNTAX, UNUSED_SUPPRESSION)
