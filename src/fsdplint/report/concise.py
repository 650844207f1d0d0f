"""One line for each finding."""

from __future__ import annotations

from fsdplint.finding import Finding
from fsdplint.outcome import Outcome
from fsdplint.report.places import located
from fsdplint.report.style import Style
from fsdplint.report.summary import summary


def concise(outcome: Outcome, style: Style) -> str:
    """``path:line:column: code [*] name: message`` each, and the summary; [*] marks a fix."""
    lines = [headline(outcome, finding, style) for finding in outcome.findings]
    return "\n".join([*lines, summary(outcome)]) + "\n"


def headline(outcome: Outcome, finding: Finding, style: Style) -> str:
    """The one line that says what is wrong and where."""
    fixable = style("[*]", "fixable") + " " if finding.fix else ""
    where = style(located(outcome, finding.span), "path")
    code = style(finding.code, finding.severity.value)
    return f"{where}: {code} {fixable}{finding.rule}: {' '.join(finding.message.split())}"
