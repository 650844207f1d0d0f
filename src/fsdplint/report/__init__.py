"""Findings to text: each report is a pure function of an outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

from fsdplint.outcome import Outcome
from fsdplint.process.terminal import COMMAND
from fsdplint.report.neutral import neutral
from fsdplint.report.style import Style, coloured, plain

Report = Callable[[Outcome, Style], str]


def _of(module: str, name: str) -> Report:
    """The report ``name`` of our ``module``, imported when it is made; some take sarif-om along."""

    def report(outcome: Outcome, style: Style) -> str:
        make: Report = getattr(import_module(f"fsdplint.report.{module}"), name)
        return make(outcome, style)

    return report


REPORTS: Mapping[str, Report] = {
    "full": _of("full", "full"),
    "concise": _of("concise", "concise"),
    "json": _of("json", "as_json"),
    "json-lines": _of("json_lines", "json_lines"),
    "github": _of("github", "github"),
    "gitlab": _of("gitlab", "gitlab"),
    "junit": _of("junit", "junit"),
    "rdjson": _of("rdjson", "rdjson"),
    "sarif": _of("sarif", "sarif"),
}
_JSON = frozenset({"json", "json-lines", "gitlab", "rdjson", "sarif"})
STATISTICS: Mapping[str, Report] = {
    "full": _of("statistics", "statistics"),
    "concise": _of("statistics", "statistics"),
    "json": _of("json", "statistics_as_json"),
}


def render(outcome: Outcome, format_: str, *, color: bool = False, counts: bool = False) -> str:
    """``outcome`` in the format called ``format_``, ending with a line end.

    Args:
        counts: how many findings of each rule there are, in the place of the findings.
    """
    reports = STATISTICS if counts else REPORTS
    text = reports[format_](neutral(outcome), coloured if color else plain)
    # As JSON may write the character, so that a log that it is printed to obeys no name or code.
    return COMMAND.sub(r"\\u0023", text) if format_ in _JSON else text
