"""Files that a run did not check, or not completely, as SARIF notifications."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby

import sarif_om as om

from fsdplint.outcome import Outcome, State
from fsdplint.report.places import early_stop_line, shown
from fsdplint.report.sarif.artifacts import Artifacts
from fsdplint.rules.invalid_syntax import RULE as INVALID_SYNTAX

# Beyond, the list would take the room of findings.
_MAX_LISTED = 10_000


def notifications(
    outcome: Outcome, indexes: Mapping[str, int], artifacts: Artifacts
) -> Iterator[om.Notification]:
    """Yield one for each file that does not parse or cannot be read, and for each early stop.

    Args:
        indexes: by the code of each rule, the index of its description.
    """
    for finding in outcome.findings:
        if finding.rule == INVALID_SYNTAX.name:
            artifact = artifacts.of(finding.span)
            place = om.Location(physical_location=artifact.physical(finding.span, context=True))
            rule = om.ReportingDescriptorReference(id=finding.code, index=indexes[finding.code])
            text = f"{finding.message[0].upper()}{finding.message[1:].rstrip('.')}."
            yield _notification("error", text, place, rule)
    for failure in outcome.failures:
        text = f"{shown(outcome, failure.path)}: {failure.reason}"
        yield _notification("error", text, artifacts.file(failure.path))
    for stop in outcome.partly:
        place = artifacts.file(stop.path)
        yield _notification("warning", f"{early_stop_line(outcome, (stop,))}.", place)
    yield from _accounts(outcome, artifacts)


def _accounts(outcome: Outcome, artifacts: Artifacts) -> Iterator[om.Notification]:
    """Yield one for each skipped file that is no failure, and one for all irrelevant files."""
    failed = {failure.path for failure in outcome.failures}
    for account in outcome.ended(State.SKIPPED):
        if account.path not in failed:
            text = f"{shown(outcome, account.path)}: skipped: {account.reason}."
            yield _notification("note", text, artifacts.file(account.path))
    irrelevant = sorted(outcome.ended(State.IRRELEVANT), key=lambda account: account.reason)
    for reason, accounts in groupby(irrelevant, key=lambda account: account.reason):
        files = [account.path for account in accounts]
        places = [place for path in files[:_MAX_LISTED] if (place := artifacts.file(path))]
        which = "1 file is" if len(files) == 1 else f"{len(files):,} files are"
        yield om.Notification(
            level="note", message=om.Message(text=f"{which} {reason}."), locations=places or None
        )


def _notification(
    level: str,
    text: str,
    place: om.Location | None,
    rule: om.ReportingDescriptorReference | None = None,
) -> om.Notification:
    return om.Notification(
        level=level,
        message=om.Message(text=text),
        locations=[place] if place else None,
        associated_rule=rule,
    )
