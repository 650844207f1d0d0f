"""The rules, a module for each: what it is, what it finds, what it says of it, and its fix.

`RULES` lists them in the order of their codes, from the table that `scripts/rules.py` makes of
their declarations; a module is imported only to run its rule.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fsdplint.finding import Safety, Severity
from fsdplint.rule import Rule


def _rule(row: dict[str, Any]) -> Rule:
    fix = Safety(row["fix"]) if row["fix"] else None
    return Rule(**{**row, "severity": Severity(row["severity"]), "fix": fix})


_TABLE = Path(__file__).with_name("table.json")
RULES: tuple[Rule, ...] = tuple(map(_rule, json.loads(_TABLE.read_text("utf-8"))))
