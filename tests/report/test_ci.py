"""The formats that continuous integration reads."""

from __future__ import annotations

import json
import re
from io import StringIO

import junitparser
import pytest

from fsdplint.files.decoding import SourceError
from fsdplint.files.file import SourceFile, from_bytes, from_text
from fsdplint.finding import Edit, Evidence, Finding, Fix, Safety, Severity, Span
from fsdplint.fixes.edits import apply
from fsdplint.outcome import Outcome
from fsdplint.report import REPORTS, render
from fsdplint.urls import rule_url

PAGE = rule_url("direct-forward")
TRAIN = from_text("# 世界\nx = '𐐀é'; bad(\n    x,\n)\ngood()\n", "/work/a,b/tr%in:1.py")
OTHER = from_text("def f():\r\n\tbad()\r\n\tbad()\r\n", "/work/lib.py")
CELLS = [{"cell_type": "code", "source": ["x\n", f"bad{n}()\n"]} for n in (1, 2)]
CONTENT = {"cells": CELLS, "metadata": {}}
NOTEBOOK = from_bytes(json.dumps(CONTENT, indent=1).encode(), "/work/n.ipynb")
UNREAD = SourceError("/work/x.py", "line 1 is not utf-8: 100 %")


def span(source: SourceFile, code: str, nth: int = 0) -> Span:
    start = [match.start() for match in re.finditer(re.escape(code), source.text)][nth]
    return Span(source.path, start, start + len(code))


def finding(
    place: Span,
    severity: Severity = Severity.ERROR,
    message: str = "`bad` is wrong",
    evidence: tuple[Evidence, ...] = (),
    fix: Fix | None = None,
) -> Finding:
    return Finding("direct-forward", "FSD302", severity, message, place, "here", evidence, fix)


def outcome(*findings: Finding, failures: tuple[SourceError, ...] = ()) -> Outcome:
    sources = {source.path: source for source in (TRAIN, OTHER, NOTEBOOK)}
    return Outcome(findings, sources, failures, "/work")


FIX = Fix(
    "cure it",
    Safety.SAFE,
    (Edit(span(TRAIN, "x,\n"), "y,\n"), Edit(span(TRAIN, "bad"), "wörse")),
)
FIRST = finding(
    span(TRAIN, "bad(\n    x,\n)"),
    evidence=(Evidence(span(OTHER, "bad()"), "the cause"),),
    fix=FIX,
)
SECOND = finding(span(OTHER, "bad()"), Severity.WARNING, "100 % wrong:\n::error::no")
THIRD = finding(span(OTHER, "bad()", 1), Severity.NOTE)
IN_CELL = finding(span(NOTEBOOK, "bad2()"))
ALL = outcome(FIRST, SECOND, THIRD, IN_CELL, failures=(UNREAD,))


@pytest.mark.parametrize("format_", REPORTS)
def test_every_format_renders_the_same_bytes_again(format_: str) -> None:
    for each in (ALL, outcome()):
        assert render(each, format_).encode() == render(each, format_).encode()


# github


def commands(text: str) -> list[tuple[str, dict[str, str], str]]:
    """Name, properties and message of each workflow command, read as GitHub's runner does."""

    def plain(value: str, codes: dict[str, str]) -> str:
        for code, character in codes.items():
            value = value.replace(code, character)
        return value.replace("%25", "%")

    ends = {"%0D": "\r", "%0A": "\n"}
    read = []
    for line in text.splitlines():
        _, head, message = line.split("::", 2)
        name, _, properties = head.partition(" ")
        pairs = (item.split("=", 1) for item in properties.split(","))
        values = {key: plain(value, {**ends, "%3A": ":", "%2C": ","}) for key, value in pairs}
        read.append((name, values, plain(message, ends)))
    return read


def test_github() -> None:
    title = {"title": "FSD302 direct-forward"}
    assert commands(render(ALL, "github")) == [
        (
            "error",
            {"file": "/work/a,b/tr%in:1.py", "line": "2", "endLine": "4", **title},
            "a,b/tr%in:1.py:2:11: `bad` is wrong\nlib.py:2:2: the cause",
        ),
        (
            "warning",
            {"file": "/work/lib.py", "line": "2", "endLine": "2", "col": "2", "endColumn": "7"}
            | title,
            "lib.py:2:2: 100 % wrong:\n::error::no",
        ),
        (
            "notice",
            {"file": "/work/lib.py", "line": "3", "endLine": "3", "col": "2", "endColumn": "7"}
            | title,
            "lib.py:3:2: `bad` is wrong",
        ),
        (
            "error",
            {"file": "/work/n.ipynb", "line": "14", "endLine": "14", "col": "6", "endColumn": "12"}
            | title,
            "n.ipynb:cell 2:2:1: `bad` is wrong",
        ),
        ("error", {"file": "/work/x.py", "title": "fsdplint"}, f"x.py: {UNREAD.reason}"),
    ]
    assert render(outcome(), "github") == ""


def test_github_escapes_what_would_end_a_command() -> None:
    [line] = render(outcome(SECOND), "github").splitlines()
    assert line == (
        "::warning file=/work/lib.py,line=2,endLine=2,col=2,endColumn=7,title=FSD302 direct-forward"
        "::lib.py:2:2: 100 %25 wrong:%0A::error::no"
    )
    assert "file=/work/a%2Cb/tr%25in%3A1.py," in render(outcome(FIRST), "github")


# gitlab


def test_gitlab() -> None:
    issues = json.loads(render(ALL, "gitlab"))
    prints = [issue.pop("fingerprint") for issue in issues]
    assert len(set(prints)) == 5
    assert all(re.fullmatch("[0-9a-f]{32}", fingerprint) for fingerprint in prints)
    assert issues == [
        {
            "description": "FSD302 direct-forward: `bad` is wrong",
            "check_name": "direct-forward",
            "severity": "critical",
            "location": {"path": "a,b/tr%in:1.py", "lines": {"begin": 2, "end": 4}},
        },
        {
            "description": "FSD302 direct-forward: 100 % wrong:\n::error::no",
            "check_name": "direct-forward",
            "severity": "minor",
            "location": {"path": "lib.py", "lines": {"begin": 2, "end": 2}},
        },
        {
            "description": "FSD302 direct-forward: `bad` is wrong",
            "check_name": "direct-forward",
            "severity": "info",
            "location": {"path": "lib.py", "lines": {"begin": 3, "end": 3}},
        },
        {
            "description": "FSD302 direct-forward: `bad` is wrong",
            "check_name": "direct-forward",
            "severity": "critical",
            "location": {"path": "n.ipynb", "lines": {"begin": 14, "end": 14}},
        },
        {
            "description": f"not checked: {UNREAD.reason}",
            "check_name": "not-checked",
            "severity": "blocker",
            "location": {"path": "x.py", "lines": {"begin": 1, "end": 1}},
        },
    ]
    assert json.loads(render(outcome(), "gitlab")) == []


def test_gitlab_says_one_failure_once() -> None:
    twice = outcome(failures=(UNREAD, SourceError(UNREAD.path, UNREAD.reason)))
    assert len(json.loads(render(twice, "gitlab"))) == 1


def test_gitlab_knows_a_finding_whose_line_moves() -> None:
    moved = from_text("import os\n\n" + OTHER.text, OTHER.path)
    later = Outcome(
        (finding(span(moved, "bad()"), Severity.WARNING),), {moved.path: moved}, (), "/work"
    )
    before, after = (json.loads(render(o, "gitlab"))[0] for o in (outcome(SECOND), later))
    assert before["fingerprint"] == after["fingerprint"]
    assert (before["location"]["lines"]["begin"], after["location"]["lines"]["begin"]) == (2, 4)


# junit


def test_junit() -> None:
    suites = list(junitparser.JUnitXml.fromstring(render(ALL, "junit").encode()))
    assert [(s.name, s.tests, s.failures, s.errors) for s in suites] == [
        ("a,b/tr%in:1.py", 1, 1, 0),
        ("lib.py", 2, 2, 0),
        ("n.ipynb", 1, 1, 0),
        ("not checked", 1, 0, 1),
    ]
    cases = [case for suite in suites for case in suite]
    assert [(case.classname, case.name) for case in cases] == [
        ("a,b/tr%in:1.py", "direct-forward: x = '𐐀é'; bad(x)"),
        ("lib.py", "direct-forward: bad()"),
        ("lib.py", "direct-forward: bad() (2)"),
        ("n.ipynb", "direct-forward: bad2()"),
        ("x.py", "x.py"),
    ]
    results = [result for case in cases for result in case.result]
    assert [type(result).__name__ for result in results] == ["Failure"] * 4 + ["Error"]
    assert [result.type for result in results] == [
        "error",
        "warning",
        "note",
        "error",
        "not checked",
    ]
    assert results[1].message == SECOND.message
    assert results[2].text.splitlines() == [
        "lib.py:3:2: FSD302 direct-forward: `bad` is wrong",
        "  |",
        "3 |     bad()",
        "  |     ^^^^^ here",
        "  |",
        "  = page: fsdplint explain direct-forward",
    ]


def test_junit_counts_in_all() -> None:
    head = render(ALL, "junit").splitlines()[:2]
    assert head == [
        '<?xml version="1.0" encoding="UTF-8"?>',
        '<testsuites name="fsdplint" tests="5" failures="4" errors="1">',
    ]


def test_junit_of_a_clean_run_is_a_passed_test() -> None:
    assert render(outcome(), "junit") == (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<testsuites name="fsdplint" tests="1" failures="0" errors="0">\n'
        '  <testsuite name="fsdplint" tests="1" failures="0" errors="0">\n'
        '    <testcase name="no findings" classname="fsdplint" />\n'
        "  </testsuite>\n"
        "</testsuites>\n"
    )


def test_junit_escapes_what_xml_cannot_hold() -> None:
    source = from_text("bad('<&>\"\x1b\x00\ufffe')\n", "/work/a\x01<b>.py")
    found = finding(Span(source.path, 0, len(source.text) - 1), message="</failure>\x0c]]>")
    text = render(Outcome((found,), {source.path: source}, (), "/work"), "junit")
    [[case]] = junitparser.JUnitXml.fromstring(text.encode())
    assert case.name == "direct-forward: bad('<&>\"\\x1b\\x00\\ufffe')"
    assert case.classname == "a\\x01<b>.py"
    assert case.result[0].message == "</failure>\\x0c]]>"


# rdjson


def test_rdjson() -> None:
    document = json.loads(render(ALL, "rdjson"))
    assert document["source"] == {"name": "fsdplint"}
    assert document["diagnostics"] == [
        {
            "message": "direct-forward: `bad` is wrong\nlib.py:2:2: the cause",
            "location": {
                "path": "a,b/tr%in:1.py",
                "range": {"start": {"line": 2, "column": 15}, "end": {"line": 4, "column": 2}},
            },
            "severity": "ERROR",
            "code": {"value": "FSD302", "url": PAGE},
            "suggestions": [
                {
                    "range": {"start": {"line": 2, "column": 15}, "end": {"line": 4, "column": 1}},
                    "text": "wörse(\n    y,\n",
                }
            ],
        },
        {
            "message": "direct-forward: 100 % wrong:\n::error::no",
            "location": {
                "path": "lib.py",
                "range": {"start": {"line": 2, "column": 2}, "end": {"line": 2, "column": 7}},
            },
            "severity": "WARNING",
            "code": {"value": "FSD302", "url": PAGE},
            "suggestions": [],
        },
        {
            "message": "direct-forward: `bad` is wrong",
            "location": {
                "path": "lib.py",
                "range": {"start": {"line": 3, "column": 2}, "end": {"line": 3, "column": 7}},
            },
            "severity": "INFO",
            "code": {"value": "FSD302", "url": PAGE},
            "suggestions": [],
        },
        {
            "message": "direct-forward: `bad` is wrong",
            "location": {
                "path": "n.ipynb",
                "range": {"start": {"line": 14, "column": 6}, "end": {"line": 14, "column": 12}},
            },
            "severity": "ERROR",
            "code": {"value": "FSD302", "url": PAGE},
            "suggestions": [],
        },
        {
            "message": f"not checked: {UNREAD.reason}",
            "location": {"path": "x.py"},
            "severity": "ERROR",
        },
    ]
    assert json.loads(render(outcome(), "rdjson"))["diagnostics"] == []


def suggested(data: bytes, suggestion: dict[str, dict[str, dict[str, int]]], text: str) -> bytes:
    """``data`` with a suggestion taken, by lines and bytes."""
    lines = data.splitlines(keepends=True)
    start, end = (
        sum(map(len, lines[: place["line"] - 1])) + place["column"] - 1
        for place in (suggestion["range"]["start"], suggestion["range"]["end"])
    )
    return data[:start] + text.encode() + data[end:]


def test_a_suggestion_is_the_whole_fix() -> None:
    diagnostic = json.loads(render(outcome(FIRST), "rdjson"))["diagnostics"][0]
    [suggestion] = diagnostic["suggestions"]
    fixed = apply(TRAIN.text, FIX.edits)
    assert fixed == "# 世界\nx = '𐐀é'; wörse(\n    y,\n)\ngood()\n"
    assert suggested(TRAIN.text.encode(), suggestion, suggestion["text"]) == fixed.encode()


def test_a_fix_of_other_files_is_no_suggestion() -> None:
    elsewhere = Fix("cure", Safety.SAFE, (*FIX.edits, Edit(span(OTHER, "bad()"), "")))
    document = json.loads(render(outcome(finding(FIRST.span, fix=elsewhere)), "rdjson"))
    assert [each["suggestions"] for each in document["diagnostics"]] == [[]]


# notebooks

FIRST_CELL, SECOND_CELL = "%time\n'é🚀\"'; bad1()\n", "if x:\n\tbad2(\n\t\t'\\n')\nend"


@pytest.fixture(params=["lines", "ascii", "strings", "one line", "crlf"])
def notebook(request: pytest.FixtureRequest) -> SourceFile:
    """A notebook as one of the programs that write them does."""
    sources: list[object] = [FIRST_CELL, SECOND_CELL]
    if request.param != "strings":
        sources = [source.splitlines(keepends=True) for source in (FIRST_CELL, SECOND_CELL)]
    cells = [{"cell_type": "code", "source": source} for source in sources]
    indent = None if request.param == "one line" else 1
    ascii_only = request.param == "ascii"
    text = json.dumps({"cells": cells, "metadata": {}}, indent=indent, ensure_ascii=ascii_only)
    if request.param == "crlf":
        text = text.replace("\n", "\r\n")
    return from_bytes(text.encode(), "/work/n.ipynb")


def of_notebook(source: SourceFile) -> tuple[Finding, ...]:
    """A finding in each cell, with a fix that edits both."""
    edits = (Edit(span(source, "bad1"), 'wörse"\\'), Edit(span(source, "bad2("), "f(\n\t\t"))
    fix = Fix("cure", Safety.SAFE, edits)
    places = (span(source, "bad1()"), span(source, "bad2(\n\t\t'\\n')"))
    return tuple(finding(place, fix=fix) for place in places)


def test_places_in_a_notebook_are_those_of_its_json(notebook: SourceFile) -> None:
    found = of_notebook(notebook)
    shown = Outcome(found, {notebook.path: notebook}, (), "/work")
    data = notebook.encode()
    lines = data.splitlines(keepends=True)
    ranges = [
        diagnostic["location"]["range"]
        for diagnostic in json.loads(render(shown, "rdjson"))["diagnostics"]
    ]
    starts = [sum(map(len, lines[: r["start"]["line"] - 1])) + r["start"]["column"] for r in ranges]
    ends = [sum(map(len, lines[: r["end"]["line"] - 1])) + r["end"]["column"] for r in ranges]
    written = [data[start - 1 : end - 1] for start, end in zip(starts, ends, strict=True)]
    assert written[0] == b"bad1()"
    assert written[1].startswith(b"bad2(\\n")
    assert written[1].endswith(rb"'\\n')")
    numbers = [(r["start"]["line"], r["end"]["line"]) for r in ranges]
    gitlab = [issue["location"]["lines"] for issue in json.loads(render(shown, "gitlab"))]
    assert [(each["begin"], each["end"]) for each in gitlab] == numbers
    github = [properties for _, properties, _ in commands(render(shown, "github"))]
    assert [(int(p["line"]), int(p["endLine"])) for p in github] == numbers
    line = data.decode().splitlines()[numbers[0][0] - 1]
    assert line[int(github[0]["col"]) - 1 : int(github[0]["endColumn"]) - 1] == "bad1()"


def test_a_suggestion_in_a_notebook_is_the_whole_fix(notebook: SourceFile) -> None:
    found = of_notebook(notebook)[:1]
    shown = Outcome(found, {notebook.path: notebook}, (), "/work")
    [diagnostic] = json.loads(render(shown, "rdjson"))["diagnostics"]
    [suggestion] = diagnostic["suggestions"]
    taken = suggested(notebook.encode(), suggestion, suggestion["text"])
    assert found[0].fix is not None
    assert taken == notebook.encode(apply(notebook.text, found[0].fix.edits))
    sources = ["".join(cell["source"]) for cell in json.loads(taken)["cells"]]
    assert sources == [
        FIRST_CELL.replace("bad1", 'wörse"\\'),
        SECOND_CELL.replace("bad2(", "f(\n\t\t"),
    ]


# json-lines


def test_json_lines_are_the_findings_of_json() -> None:
    text = render(ALL, "json-lines")
    found = [json.loads(line) for line in StringIO(text)]
    assert len(found) == 4
    assert found == json.loads(render(ALL, "json"))["findings"]
    assert render(outcome(), "json-lines") == ""
