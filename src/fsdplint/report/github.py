"""Findings as GitHub's workflow commands, which annotate the lines of a pull request.

GitHub shows ten errors, ten warnings and ten notices of a step; its log holds all. A place in a
notebook is that in its JSON, which GitHub annotates; the message names the cell.
"""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.finding import Finding, Severity
from fsdplint.outcome import Outcome
from fsdplint.process.terminal import printable
from fsdplint.report.places import in_document, located, shown
from fsdplint.report.style import Style

_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}
_MESSAGE = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_PROPERTY = {**_MESSAGE, **str.maketrans({":": "%3A", ",": "%2C"})}


def github(outcome: Outcome, style: Style) -> str:  # noqa: ARG001 - a Report
    """A command each for findings and for what was not checked."""
    commands = [_finding(outcome, finding) for finding in outcome.findings]
    for failure in outcome.failures:
        title = {"file": printable(failure.path), "title": "fsdplint"}
        commands.append(
            _command("error", title, f"{shown(outcome, failure.path)}: {failure.reason}")
        )
    return "".join(f"{command}\n" for command in commands)


def _finding(outcome: Outcome, finding: Finding) -> str:
    # The runner takes an absolute path relative to the checkout, wherever this was run.
    properties = {"file": printable(finding.span.path), **_range(outcome, finding)}
    properties["title"] = f"{finding.code} {finding.rule}"
    message = "\n".join(_lines(outcome, finding))
    return _command(_COMMANDS[finding.severity], properties, message)


def _range(outcome: Outcome, finding: Finding) -> dict[str, str]:
    """Lines, and columns where the runner keeps them: on one line."""
    (line, column), (last, end) = in_document(outcome, finding.span)
    lines = {"line": str(line), "endLine": str(last)}
    return lines if line != last else {**lines, "col": str(column), "endColumn": str(end)}


def _lines(outcome: Outcome, finding: Finding) -> Iterator[str]:
    yield f"{located(outcome, finding.span)}: {finding.message}"
    for evidence in finding.evidence:
        yield f"{located(outcome, evidence.span)}: {evidence.note}"


def _command(name: str, properties: dict[str, str], message: str) -> str:
    given = ",".join(f"{key}={value.translate(_PROPERTY)}" for key, value in properties.items())
    return f"::{name} {given}::{message.translate(_MESSAGE)}"
