"""What a run could not look at, or not wholly, as notifications."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import sarif_om as om

from fsdplint.account import State
from fsdplint.finding import Finding
from fsdplint.outcome import Outcome
from fsdplint.report.early_stops import sentence
from fsdplint.report.places import shown
from fsdplint.report.sarif.artifacts import Artifacts, location_of

# Beyond, the list would take the room of findings.
_MAX_LISTED = 10_000


def notifications(
    outcome: Outcome,
    unparsable: Sequence[Finding],
    indexes: Mapping[str, int],
    artifacts: Artifacts,
) -> Iterator[om.Notification]:
    """One for each file that does not parse or cannot be read, and each early stop.

    Args:
        indexes: where the rule of a code is described.
    """
    for finding in unparsable:
        place = om.Location(
            physical_location=artifacts.of(finding.span).physical(finding.span, context=True)
        )
        rule = om.ReportingDescriptorReference(id=finding.code, index=indexes[finding.code])
        text = f"The file is not valid Python: {finding.message.rstrip('.')}."
        yield _notification("error", text, place, rule)
    for failure in outcome.failures:
        text = f"{shown(outcome, failure.path)}: {failure.reason}"
        yield _notification("error", text, _file(failure.path, artifacts.root))
    for stop in outcome.partly:
        place = _file(stop.path, artifacts.root)
        yield _notification("warning", f"{sentence(outcome, (stop,))}.", place)
    yield from _accounts(outcome, artifacts.root)


def _accounts(outcome: Outcome, root: str) -> Iterator[om.Notification]:
    """What was skipped each, unless it is told already, and what takes no part together."""
    told = {failure.path for failure in outcome.failures}
    for account in outcome.ended(State.SKIPPED):
        if account.path not in told:
            text = f"{shown(outcome, account.path)}: skipped, since it {account.reason}."
            yield _notification("note", text, _file(account.path, root))
    irrelevant = sorted(outcome.ended(State.IRRELEVANT), key=lambda account: account.reason)
    for reason, accounts in groupby(irrelevant, key=lambda account: account.reason):
        files = [account.path for account in accounts]
        places = [place for path in files[:_MAX_LISTED] if (place := _file(path, root))]
        each = "1 file" if len(files) == 1 else f"Each of {len(files):,} files"
        yield om.Notification(
            level="note", message=om.Message(text=f"{each} {reason}."), locations=places or None
        )


def note(text: str) -> om.Notification:
    """A warning about the run and not about a file."""
    return _notification("warning", text)


def _notification(
    level: str,
    text: str,
    place: om.Location | None = None,
    rule: om.ReportingDescriptorReference | None = None,
) -> om.Notification:
    return om.Notification(
        level=level,
        message=om.Message(text=text),
        locations=[place] if place else None,
        associated_rule=rule,
    )


def _file(path: str, root: str) -> om.Location | None:
    """The file at ``path``, or None if it is no file below ``root``."""
    if not path.startswith(f"{root.rstrip('/')}/"):
        return None
    physical = om.PhysicalLocation(artifact_location=location_of(path, root))
    return om.Location(physical_location=physical)
