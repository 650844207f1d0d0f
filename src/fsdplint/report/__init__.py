"""Findings to text: each report is a pure function of an outcome."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import import_module

from fsdplint.files.decoding import SourceError
from fsdplint.finding import Evidence, Finding
from fsdplint.outcome import Outcome
from fsdplint.process.terminal import COMMAND, printable
from fsdplint.report.style import Style, plain

Report = Callable[[Outcome, Style], str]
# The function that makes each report, by its format. Its module is imported when it is needed:
# SARIF's brings sarif-om, JUnit's an XML library.
REPORTS: Mapping[str, str] = {
    "full": "text.full",
    "concise": "text.concise",
    "compact": "compact.compact",
    "json": "json.as_json",
    "json-lines": "json.json_lines",
    "github": "ci.github",
    "gitlab": "ci.gitlab",
    "junit": "junit.junit",
    "rdjson": "ci.rdjson",
    "sarif": "sarif.sarif",
}
STATISTICS: Mapping[str, str] = {
    "full": "text.statistics",
    "concise": "text.statistics",
    "json": "json.statistics_as_json",
}
_JSON = frozenset({"compact", "json", "json-lines", "gitlab", "rdjson", "sarif"})


def render(outcome: Outcome, format_: str, *, style: Style = plain, counts: bool = False) -> str:
    """Return the report on ``outcome`` in the format ``format_``, ending with a line end.

    Args:
        counts: report the number of findings of each rule instead of the findings.
    """
    module, name = (STATISTICS if counts else REPORTS)[format_].split(".")
    report: Report = getattr(import_module(f"fsdplint.report.{module}"), name)
    text = report(_neutral(outcome), style)
    # JSON may spell the character so; a log that shows the report then contains no command.
    return COMMAND.sub(r"\\u0023", text) if format_ in _JSON else text


def _neutral(outcome: Outcome) -> Outcome:
    """Return ``outcome`` with the control characters in its texts escaped.

    Texts quote the user's code, and a terminal obeys control characters. Places are unchanged.
    """
    return replace(
        outcome,
        findings=tuple(map(_neutral_finding, outcome.findings)),
        failures=tuple(SourceError(e.path, _escaped(e.reason)) for e in outcome.failures),
    )


def _neutral_finding(finding: Finding) -> Finding:
    fix = finding.fix
    return replace(
        finding,
        message=_escaped(finding.message),
        label=_escaped(finding.label),
        evidence=tuple(Evidence(e.span, _escaped(e.note)) for e in finding.evidence),
        fix=fix and replace(fix, title=_escaped(fix.title)),
        fix_declined=_escaped(finding.fix_declined),
    )


def _escaped(text: str) -> str:
    return printable(text, "\n\t")  # which reports fold
