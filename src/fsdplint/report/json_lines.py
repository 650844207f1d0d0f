"""Findings as JSON, one on a line: each is an object as the JSON document has it."""

from __future__ import annotations

import json

from fsdplint.outcome import Outcome
from fsdplint.report.json import finding_as_json
from fsdplint.report.style import Style


def json_lines(outcome: Outcome, style: Style) -> str:  # noqa: ARG001 - a Report
    """An object of `fsdplint.report.json` on each line; nothing if there is no finding."""
    return "".join(
        json.dumps(finding_as_json(outcome, finding)) + "\n" for finding in outcome.findings
    )
