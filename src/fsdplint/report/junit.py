"""Findings as failed tests in JUnit's XML, as Jenkins, GitLab and others read it.

A file with findings is a test suite, and a finding a failed test in it, named so that it keeps its
name when its line moves. What was not checked is a test with an error. Where there is neither, one
test passes, since an empty report is an error for some.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from fsdplint.files.decoding import SourceError
from fsdplint.finding import Finding
from fsdplint.fingerprint import Identity, identities
from fsdplint.outcome import Outcome
from fsdplint.process.terminal import printable
from fsdplint.report.full import described
from fsdplint.report.places import shown
from fsdplint.report.style import Style, plain

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element


def junit(outcome: Outcome, style: Style) -> str:  # noqa: ARG001 - a Report
    """A ``testsuites`` element."""
    from xml.etree import ElementTree

    root = ElementTree.Element("testsuites")
    by_path = groupby(identities(outcome).items(), key=lambda item: item[0].span.path)
    for path, found in by_path:
        cases = [_finding(outcome, *item) for item in found]
        root.append(_suite(shown(outcome, path), cases, failures=len(cases)))
    if outcome.failures:
        cases = [_failure(outcome, failure) for failure in outcome.failures]
        root.append(_suite("not checked", cases, errors=len(cases)))
    if not len(root):
        root.append(_suite("fsdplint", [_case("no findings", "fsdplint")]))
    _count(root, len(outcome.findings), len(outcome.failures))
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _suite(name: str, cases: list[Element], failures: int = 0, errors: int = 0) -> Element:
    suite = _element("testsuite", name=name)
    suite.set("tests", str(len(cases)))
    suite.set("failures", str(failures))
    suite.set("errors", str(errors))
    suite.extend(cases)
    return suite


def _count(root: Element, failures: int, errors: int) -> None:
    root.set("name", "fsdplint")
    root.set("tests", str(failures + errors or 1))
    root.set("failures", str(failures))
    root.set("errors", str(errors))


def _finding(outcome: Outcome, finding: Finding, known: Identity) -> Element:
    number = f" ({known.occurrence})" if known.occurrence > 1 else ""
    case = _case(f"{finding.rule}: {known.code}{number}", shown(outcome, finding.span.path))
    failure = _element("failure", message=finding.message, type=finding.severity.value)
    failure.text = _valid("\n".join(described(outcome, finding, plain)))
    case.append(failure)
    return case


def _failure(outcome: Outcome, failure: SourceError) -> Element:
    path = shown(outcome, failure.path)
    case = _case(path, path)
    case.append(_element("error", message=failure.reason, type="not checked"))
    return case


def _case(name: str, classname: str) -> Element:
    return _element("testcase", name=" ".join(name.split()), classname=classname)


def _element(tag: str, **attributes: str) -> Element:
    from xml.etree.ElementTree import Element

    return Element(tag, {name: _valid(value) for name, value in attributes.items()})


def _valid(text: str) -> str:
    """``text`` without what XML cannot hold in any spelling, or a terminal would obey."""
    return printable(text, "\n\t")
