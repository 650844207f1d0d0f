"""Findings as failed tests in JUnit's XML, for Jenkins, GitLab and others.

A file with findings is a test suite and a finding a failed test in it, whose name does not depend
on its line. What was not checked is a test with an error. Without either, the report has one test
that passes, since some readers reject an empty report.
"""

from __future__ import annotations

from itertools import groupby
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from fsdplint.finding import Finding
from fsdplint.fingerprint import Identity, identities
from fsdplint.outcome import Outcome
from fsdplint.process.terminal import printable
from fsdplint.report.places import shown
from fsdplint.report.style import Style, plain
from fsdplint.report.text import described


def junit(outcome: Outcome, _: Style) -> str:
    """Return a document with one ``testsuites`` element."""
    root = Element("testsuites")
    for path, found in groupby(identities(outcome).items(), lambda item: item[0].span.path):
        cases = [_finding(outcome, *item) for item in found]
        _suite(root, shown(outcome, path), cases, failures=len(cases))
    if outcome.failures:
        cases = [_failure(shown(outcome, e.path), e.reason) for e in outcome.failures]
        _suite(root, "not checked", cases, errors=len(cases))
    if not len(root):
        _suite(root, "fsdplint", [_case("no findings", "fsdplint")])
    failures, errors = len(outcome.findings), len(outcome.failures)
    root.attrib |= _counts("fsdplint", failures + errors or 1, failures, errors)
    indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, encoding="unicode")}\n'


def _suite(
    root: Element, name: str, cases: list[Element], failures: int = 0, errors: int = 0
) -> None:
    counts = _counts(_valid(name), len(cases), failures, errors)
    SubElement(root, "testsuite", counts).extend(cases)


def _counts(name: str, tests: int, failures: int, errors: int) -> dict[str, str]:
    return {
        "name": name,
        "tests": str(tests),
        "failures": str(failures),
        "errors": str(errors),
    }


def _finding(outcome: Outcome, finding: Finding, known: Identity) -> Element:
    number = f" ({known.occurrence})" if known.occurrence > 1 else ""
    case = _case(f"{finding.rule}: {known.code}{number}", shown(outcome, finding.span.path))
    message = _valid(finding.message)
    failure = SubElement(case, "failure", message=message, type=finding.severity.value)
    failure.text = _valid("\n".join(described(outcome, finding, plain)))
    return case


def _failure(path: str, reason: str) -> Element:
    case = _case(path, path)
    SubElement(case, "error", message=_valid(reason), type="not checked")
    return case


def _case(name: str, classname: str) -> Element:
    names = {"name": _valid(" ".join(name.split())), "classname": _valid(classname)}
    return Element("testcase", names)


def _valid(text: str) -> str:
    """Return ``text`` with everything escaped that XML cannot hold, or a terminal obeys."""
    return printable(text, "\n\t")
