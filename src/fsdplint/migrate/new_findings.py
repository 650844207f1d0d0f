"""The findings of a migrated program that it did not have before."""

from __future__ import annotations

from collections import Counter

from fsdplint.finding import Finding
from fsdplint.outcome import Outcome


def new_findings(before: Outcome, after: Outcome) -> tuple[Finding, ...]:
    """Return the findings that were not there before.

    These are as many as a rule has more in a file, and those first whose line had none.
    """
    known = Counter(_identity(before, finding) for finding in before.findings)
    more = Counter(map(_place, after.findings))
    more.subtract(map(_place, before.findings))
    found = []
    for finding in after.findings:
        identity = _identity(after, finding)
        known[identity] -= 1
        if known[identity] < 0 and more[_place(finding)] > 0:
            more[_place(finding)] -= 1
            found.append(finding)
    return tuple(found)


def _place(finding: Finding) -> tuple[str, str]:
    return finding.rule, finding.span.path


def _identity(outcome: Outcome, finding: Finding) -> tuple[str, str, str]:
    source = outcome.sources[finding.span.path]
    line, _ = source.position(finding.span.start)
    return finding.rule, finding.span.path, source.line(line).strip()
