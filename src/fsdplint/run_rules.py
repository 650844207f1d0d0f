"""Run a rule on a program. A rule that fails is reported and costs no other rule's findings."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fsdplint.files import disk
from fsdplint.files.decoding import SourceError
from fsdplint.finding import Finding, Fix, Span
from fsdplint.fixes.code import Declined
from fsdplint.rule import Report, Rule, with_least_evidence

if TYPE_CHECKING:
    from fsdplint.engine.program import Program

# Each fix of a finding looks through its file: so many characters for a rule's in one file.
MAX_MENDED = 1_000_000
_TOO_MANY = Declined("fixes of the other findings come first, of which this file has very many")


@dataclass(slots=True)
class Judgement:
    """The findings of a rule in a program, and where the rule itself failed."""

    findings: list[Finding] = field(default_factory=list)
    faults: list[SourceError] = field(default_factory=list)


def judge(rule: Rule, program: Program) -> Judgement:
    """Return what ``rule`` finds in ``program``; if it fails, what it found before."""
    judgement = Judgement()
    reports: list[Report] = []
    try:
        for report in rule.reports(program):
            reports.append(report)
        reports = _shown_by_programs(rule, program, reports)
        reports += _in_methods(rule, program)
    except Exception as error:  # whatever it is, the other rules go on
        reason = internal(rule.name, error)
        judgement.faults.extend(SourceError(path, reason) for path in _culprits(rule, program))
    mended: Counter[str] = Counter()
    for report in with_least_evidence(reports):
        path = report.span.path
        mended[path] += len(program.tree(path).text)
        made = _fix(rule, report, judgement) if mended[path] <= MAX_MENDED else _TOO_MANY
        judgement.findings.append(rule.finding(report, made))
    return judgement


def judge_on(rule: Rule, kind: str, value: object, path: str) -> Judgement:
    """Return what ``rule`` finds in a file of another kind; if it fails, what it found before."""
    judgement = Judgement()
    reports: list[Report] = []
    try:
        for report in rule.reports_on(kind, value):
            reports.append(report)
    except Exception as error:  # whatever it is, the other rules go on
        judgement.faults.append(SourceError(path, internal(rule.name, error)))
    each = with_least_evidence(reports)
    judgement.findings += (rule.finding(report, _fix(rule, report, judgement)) for report in each)
    return judgement


def spans_on_paths_from(files: Collection[str], rule: Rule, program: Program) -> frozenset[Span]:
    """Return where ``rule`` finds something on paths that start in one of ``files``."""
    own = tuple(trace for trace in program.traces if trace.path in files)
    try:
        return frozenset(report.span for report in rule.reports(program.only(own)))
    except Exception:  # the rule's fault, which `judge` has noted
        return frozenset()


def _in_methods(rule: Rule, program: Program) -> list[Report]:
    """Return the reports that show code of methods which nothing calls.

    What surrounds such a method on its path is shown by programs, or not to be known.
    """
    traces = program.method_traces
    code = {place for trace in traces for place in trace.method_code or ()}
    return [
        report
        for report in (rule.reports(program.only(traces)) if code else ())
        if any(
            span.path == path and start <= span.start < end
            for span in (report.span, *(evidence.span for evidence in report.evidence))
            for path, start, end in code
        )
    ]


def _shown_by_programs(rule: Rule, program: Program, reports: list[Report]) -> list[Report]:
    """Return the reports without those on code outside tests that only a test shows.

    What a test hands over, such as a mock or None, is not what a program does.
    """
    is_test = program.project.is_test
    tests = {path for path in {trace.path for trace in program.traces} if is_test(path)}
    own = tuple(trace for trace in program.traces if trace.path not in tests)
    if len(own) == len(program.traces) or all(is_test(report.span.path) for report in reports):
        return reports
    shown = {report.span for report in rule.reports(program.only(own))}
    return [report for report in reports if report.span in shown or is_test(report.span.path)]


def _fix(rule: Rule, report: Report, judgement: Judgement) -> Fix | Declined:
    try:
        return report.fix()
    except Exception as error:  # the finding is true all the same
        reason = internal(f"the fix of {rule.name}", error)
        judgement.faults.append(SourceError(report.span.path, reason))
        return Declined("an internal error prevents the fix")


def _culprits(rule: Rule, program: Program) -> list[str]:
    """Return the files whose programs ``rule`` fails on, or the project if none does alone."""
    every = sorted({trace.path for trace in program.traces})
    found = [path for path in every if _fails(rule, program, path)]
    return found or [program.project.root.as_posix()]


def _fails(rule: Rule, program: Program, path: str) -> bool:
    own = tuple(trace for trace in program.traces if trace.path == path)
    try:
        for _ in rule.reports(program.only(own)):
            pass
    except Exception:  # the same fault, which is reported already
        return True
    return False


def internal(where: str, error: Exception) -> str:
    """Return one line that reports ``error`` in ``where``, a part of fsdplint.

    With FSDPLINT_DEBUG in the environment, raise the error instead.
    """
    disk.unrepeatable()
    if os.environ.get("FSDPLINT_DEBUG"):
        raise error
    what = " ".join(f"{type(error).__name__}: {error}".split())
    hint = "FSDPLINT_DEBUG=1 prints the traceback"
    return f"internal error in {where}, please report it: {what} ({hint})"
