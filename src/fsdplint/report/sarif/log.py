"""The log of a run: the tool with its rules, the results, and what could not be looked at."""

from __future__ import annotations

from collections.abc import Iterator

import sarif_om as om

from fsdplint import __version__
from fsdplint.fingerprint import fingerprints
from fsdplint.outcome import Outcome
from fsdplint.report.sarif.artifacts import ROOT, Artifacts
from fsdplint.report.sarif.descriptors import descriptor
from fsdplint.report.sarif.limits import Limits, most_severe, with_evidence
from fsdplint.report.sarif.notifications import note, notifications
from fsdplint.report.sarif.results import result_of
from fsdplint.report.sarif.root import root_of
from fsdplint.report.sarif.serializer import serialize
from fsdplint.rules import RULES
from fsdplint.rules.invalid_syntax import RULE as INVALID_SYNTAX

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LINE_ENDS = ["\r\n", "\n", "\r"]


class Log:
    """An outcome as a log, of as many of its findings as are wanted.

    Attributes:
        findings: those that become results.
        unparsable: those that become notifications.
    """

    def __init__(self, outcome: Outcome, limits: Limits) -> None:
        self.outcome = outcome
        self.limits = limits
        self.findings = [f for f in outcome.findings if f.rule != INVALID_SYNTAX.name]
        self.unparsable = [f for f in outcome.findings if f.rule == INVALID_SYNTAX.name]
        run = outcome.rules | {finding.rule for finding in outcome.findings}
        self.rules = [rule for rule in RULES if rule.name in run]
        self.indexes = {rule.code: index for index, rule in enumerate(self.rules)}
        self.root = root_of(outcome)
        self.artifacts = Artifacts(outcome.sources, self.root)
        self.fingerprints = fingerprints(outcome, self.root)
        self.known: dict[int, om.Result] = {}

    def text(self, count: int) -> str:
        """The log with the ``count`` most severe findings."""
        kept = most_severe(self.findings, count)
        invocation = om.Invocation(
            execution_successful=self.outcome.checked > 0 or not self.outcome.failures,
            tool_execution_notifications=[*self._cuts(kept), *self._notifications()] or None,
        )
        run = om.Run(
            tool=om.Tool(driver=self._driver()),
            invocations=[invocation],
            results=[self._result(index) for index in kept],
            column_kind="utf16CodeUnits",
            newline_sequences=_LINE_ENDS,
            original_uri_base_ids={
                ROOT: om.ArtifactLocation(description=om.Message(text="The root of the sources."))
            },
        )
        return serialize(om.SarifLog(version="2.1.0", schema_uri=_SCHEMA, runs=[run]))

    def _driver(self) -> om.ToolComponent:
        return om.ToolComponent(
            name="fsdplint",
            version=__version__,
            semantic_version=__version__,
            information_uri="https://pypi.org/project/fsdplint/",
            rules=[descriptor(rule) for rule in self.rules],
        )

    def _result(self, index: int) -> om.Result:
        if index not in self.known:
            finding = self.findings[index]
            shown = with_evidence(finding, self.limits.locations - 1)
            rule, fingerprint = self.indexes[finding.code], self.fingerprints[finding]
            self.known[index] = result_of(shown, rule, fingerprint, self.artifacts)
        return self.known[index]

    def _notifications(self) -> Iterator[om.Notification]:
        yield from notifications(self.outcome, self.unparsable, self.indexes, self.artifacts)

    def _cuts(self, kept: list[int]) -> Iterator[om.Notification]:
        """What is left out for GitHub's limits."""
        if len(kept) < len(self.findings):
            yield note(
                f"Only the {len(kept):,} most severe of {len(self.findings):,} findings are here, "
                "since GitHub takes no more."
            )
        cut = sum(len(self.findings[i].evidence) >= self.limits.locations for i in kept)
        if cut:
            yield note(
                f"{cut:,} results show only the first {self.limits.locations - 1:,} places of "
                "their evidence, since GitHub shows no more."
            )
