"""What a rule is: a declaration, and a pure generator from facts to reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from fsdplint.finding import Evidence, Finding, Fix, Safety, Severity, Span

if TYPE_CHECKING:
    from fsdplint.engine.program import Program
    from fsdplint.fixes.code import Declined


@dataclass(frozen=True, slots=True)
class Report:
    """A finding before it knows its rule.

    Attributes:
        fix: builds the fix or its refusal; called once for each reported finding.
    """

    span: Span
    message: str
    label: str
    evidence: tuple[Evidence, ...]
    fix: Callable[[], Fix | Declined]


_APPLICABILITY = {Safety.SAFE: "safe where certain", Safety.UNSAFE: "unsafe", None: "none"}


@dataclass(frozen=True, slots=True)
class Rule:
    """A contract that code can break.

    Attributes:
        name: kebab-case, the fault and not the cure; the stem of its page and, in snake case, of
            its module.
        code: "FSD" and three digits; the hundred is the topic.
        fix: SAFE if its fixes are safe where it is certain that they can be, UNSAFE if they never
            are, None where a rule has none. What one finding's fix is, that fix says.
        since: the version of fsdplint it appeared in.
        clause: the clause of `fsdplint verify` that a run of the program breaks, None where the
            contract does not show at run time.
        preview: why the rule is off by default, "" where it is not.
    """

    name: str
    code: str
    summary: str
    severity: Severity
    fix: Safety | None
    since: str
    clause: str | None = None
    preview: str = ""

    def reports(self, program: Program) -> Iterator[Report]:
        """Return the rule's reports on ``program``; the first call imports its module."""
        # The tool's own rules are about files, and have no function for programs.
        return self._made("reports", program)

    def reports_on(self, kind: str, value: object) -> Iterator[Report]:
        """Return the rule's reports on what a file of another kind than Python holds.

        Args:
            kind: what the function of rules for it is called by, e.g. "config" for
                `config_reports`; rules without the function have no reports.
        """
        return self._made(f"{kind}_reports", value)

    def _made(self, function: str, value: object) -> Iterator[Report]:
        module = import_module(f"fsdplint.rules.{self.name.replace('-', '_')}")
        reports: Iterator[Report] = getattr(module, function, _none)(value)
        return reports

    @property
    def is_of_configs(self) -> bool:
        """Whether it is about files of other kinds than Python."""
        return self.code.startswith("FSD9")

    @property
    def applicability(self) -> str:
        """How users see the safety of its fixes: "safe where certain", "unsafe" or "none"."""
        return _APPLICABILITY[self.fix]

    def finding(self, report: Report, made: Fix | Declined) -> Finding:
        """Return ``report`` as a finding of this rule, with the fix or refusal ``made`` for it."""
        fix = made if isinstance(made, Fix) else None
        return Finding(
            self.name,
            self.code,
            self.severity,
            report.message,
            report.span,
            report.label,
            tuple(_distinct(report.evidence, report.span)),
            fix,
            "" if isinstance(made, Fix) else made.reason,
        )


def declare(
    module: str,
    code: str,
    *,
    summary: str,
    severity: Severity,
    fix: Safety | None,
    since: str,
    clause: str | None = None,
    preview: str = "",
) -> Rule:
    """Return the rule of a ``module`` of `fsdplint.rules`, named after the module."""
    name = module.rpartition(".")[2].replace("_", "-")
    return Rule(name, code, summary, severity, fix, since, clause, preview)


def _none(_: object) -> Iterator[Report]:
    return iter(())


def with_least_evidence(reports: Iterable[Report]) -> list[Report]:
    """Return one report per place: of several, the one with the least evidence."""
    best: dict[Span, Report] = {}
    for report in reports:
        known = best.get(report.span)
        if known is None or len(report.evidence) < len(known.evidence):
            best[report.span] = report
    return list(best.values())


def _distinct(evidence: Iterable[Evidence], primary: Span) -> Iterator[Evidence]:
    """Yield evidence without repeated places and without the finding's own."""
    seen = {primary}
    for item in evidence:
        if item.span not in seen:
            seen.add(item.span)
            yield item
