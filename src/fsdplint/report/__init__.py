"""Findings to text: each report is a pure function of an outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fsdplint.outcome import Outcome
from fsdplint.report.concise import concise
from fsdplint.report.full import full
from fsdplint.report.github import github
from fsdplint.report.gitlab import gitlab
from fsdplint.report.json import as_json, statistics_as_json
from fsdplint.report.json_lines import json_lines
from fsdplint.report.neutral import neutral
from fsdplint.report.rdjson import rdjson
from fsdplint.report.statistics import statistics
from fsdplint.report.style import Style, coloured, plain

Report = Callable[[Outcome, Style], str]


def _junit(outcome: Outcome, style: Style) -> str:
    from fsdplint.report.junit import (
        junit,
    )  # its pattern of what XML cannot hold is slow to compile

    return junit(outcome, style)


def _sarif(outcome: Outcome, style: Style) -> str:
    # sarif-om takes longer to import than a small run does.
    from fsdplint.report.sarif import sarif

    return sarif(outcome, style)


REPORTS: Mapping[str, Report] = {
    "full": full,
    "concise": concise,
    "json": as_json,
    "json-lines": json_lines,
    "github": github,
    "gitlab": gitlab,
    "junit": _junit,
    "rdjson": rdjson,
    "sarif": _sarif,
}
STATISTICS: Mapping[str, Report] = {
    "full": statistics,
    "concise": statistics,
    "json": statistics_as_json,
}


def render(outcome: Outcome, format_: str, *, color: bool = False, counts: bool = False) -> str:
    """``outcome`` in the format called ``format_``, ending with a line end.

    Args:
        counts: how many findings of each rule there are, in the place of the findings.
    """
    reports = STATISTICS if counts else REPORTS
    return reports[format_](neutral(outcome), coloured if color else plain)
