"""Findings as JSON, for other programs.

The document is an object: ``version`` (1; it increases when a member is removed or changes its
meaning, not when one is added), ``summary`` (the last line of the text reports), ``findings``,
``failures`` (``path`` and ``reason`` of what could not be checked),
``known`` (how many findings are left out, since they are in the baseline), ``partly`` (where the
analysis stopped early, so that findings may be missing: ``path``, ``name`` of a function, or
``<module>``, and ``reason``), ``files`` (what became of each file, by path: ``path``, ``state`` and
``reason``, which is null for a checked one) and ``checked`` (how many of these were checked).

The state of a file is ``checked``, ``irrelevant`` (not part of a program that shards, so no rule
can find anything in it), ``skipped`` (it was not checked on purpose) or ``failed``.

A finding has ``rule``, ``code``, ``severity`` (error, warning or note), ``url`` of
the rule's page, ``message``, ``label``,
``path``, ``start``, ``end``, ``evidence`` (a list of ``note``, ``path``, ``start``, ``end``),
``fix`` (null, or ``title``, ``safety`` and ``edits``: a list of ``path``, ``start``, ``end`` and
the ``text`` to put there) and ``fix_declined`` (why there is no fix, or null).

Paths are relative to the working directory if they lie in it. Lines and columns count from 1,
columns in characters, ``end`` is exclusive; in a notebook ``cell`` counts from 1 and lines are the
cell's, elsewhere ``cell`` is absent.
"""

from __future__ import annotations

import json

from fsdplint.finding import Finding, Fix, Span
from fsdplint.outcome import Account, Outcome
from fsdplint.report.places import place, relative
from fsdplint.report.style import Style
from fsdplint.report.text import count_by_rule, summary
from fsdplint.urls import rule_url


def as_json(outcome: Outcome, _: Style) -> str:
    """Return the document that the module describes."""
    document = {
        "version": 1,
        "summary": summary(outcome),
        "checked": outcome.checked,
        "findings": [finding_as_json(outcome, finding) for finding in outcome.findings],
        "failures": failures_as_json(outcome),
        "known": outcome.known,
        "partly": [
            {"path": relative(outcome, stop.path), "name": stop.entry, "reason": stop.reason}
            for stop in outcome.partly
        ],
        "files": [_account(outcome, account) for account in outcome.accounts],
    }
    return json.dumps(document, indent=2) + "\n"


def json_lines(outcome: Outcome, _: Style) -> str:
    """Return a line for each finding: the object that the JSON document has for it."""
    return "".join(json.dumps(finding_as_json(outcome, f)) + "\n" for f in outcome.findings)


def statistics_as_json(outcome: Outcome, _: Style) -> str:
    """Return a list of ``code``, ``rule``, ``count`` and ``fixable``, most frequent rule first."""
    members = ("code", "rule", "count", "fixable")
    rows = [dict(zip(members, row, strict=True)) for row in count_by_rule(outcome)]
    return json.dumps(rows, indent=2) + "\n"


def finding_as_json(outcome: Outcome, finding: Finding) -> dict[str, object]:
    """Return the object for ``finding`` that the module describes."""
    return {
        "rule": finding.rule,
        "code": finding.code,
        "severity": finding.severity.value,
        "url": rule_url(finding.rule),
        "message": finding.message,
        "label": finding.label,
        **_span(outcome, finding.span),
        "evidence": [
            {"note": evidence.note, **_span(outcome, evidence.span)}
            for evidence in finding.evidence
        ],
        "fix": _fix(outcome, finding.fix) if finding.fix else None,
        "fix_declined": finding.fix_declined or None,
    }


def failures_as_json(outcome: Outcome) -> list[dict[str, str]]:
    """Return ``path`` and ``reason`` of all that could not be checked."""
    return [{"path": relative(outcome, e.path), "reason": e.reason} for e in outcome.failures]


def place_as_json(outcome: Outcome, path: str, offset: int) -> dict[str, int]:
    """Return ``line`` and ``column`` of a place and, in a notebook, its ``cell``."""
    where = place(outcome, path, offset)
    cell = {} if where.cell is None else {"cell": where.cell}
    return {**cell, "line": where.line, "column": where.column}


def _account(outcome: Outcome, account: Account) -> dict[str, str | None]:
    path = relative(outcome, account.path)
    return {"path": path, "state": account.state.value, "reason": account.reason or None}


def _fix(outcome: Outcome, fix: Fix) -> dict[str, object]:
    edits = [{"text": edit.text, **_span(outcome, edit.span)} for edit in fix.edits]
    return {"title": fix.title, "safety": fix.safety.value, "edits": edits}


def _span(outcome: Outcome, span: Span) -> dict[str, object]:
    return {
        "path": relative(outcome, span.path),
        "start": place_as_json(outcome, span.path, span.start),
        "end": place_as_json(outcome, span.path, span.end),
    }
