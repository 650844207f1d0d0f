"""No report has a character that a terminal would obey, whatever the user's code and files hold."""

from __future__ import annotations

import json
import re

import pytest

from fsdplint.files.decoding import SourceError
from fsdplint.files.file import from_text
from fsdplint.finding import Edit, Evidence, Finding, Fix, Safety, Severity, Span
from fsdplint.outcome import Changes, Outcome
from fsdplint.report import REPORTS, STATISTICS, render
from fsdplint.report.diff import diff
from fsdplint.report.style import Style, plain
from fsdplint.urls import rule_url

# A title and a colour, a bell, a window's control in one character, and text from right to left.
EVIL = "\x1b]0;evil\x07\x1b[31m\x9b2J\u202e\r"
SOURCE = from_text(f"bad('{EVIL}')\n", f"/work/a{EVIL}\n.py")
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")
LINK = f"\x1b]8;;{rule_url('direct-forward')}\x1b\\"
COLOUR = re.compile(r"\x1b\[\d*(;\d+)*m")


def outcome() -> Outcome:
    span = Span(SOURCE.path, 0, 5)
    fix = Fix(f"do {EVIL}", Safety.SAFE, (Edit(span, "good()"),))
    words = {"message": f"m {EVIL}", "label": f"l {EVIL}", "evidence": (Evidence(span, EVIL),)}
    found = (
        Finding("direct-forward", "FSD302", Severity.ERROR, span=span, fix=fix, **words),
        Finding("direct-forward", "FSD302", Severity.ERROR, span=span, fix_declined=EVIL, **words),
    )
    failures = (SourceError(f"/work/b{EVIL}.py", f"is {EVIL}"),)
    return Outcome(found, {SOURCE.path: SOURCE}, failures, "/work")


@pytest.mark.parametrize("style", [plain, Style(color=True), Style(True, True)])
@pytest.mark.parametrize("format_", REPORTS)
def test_no_report_has_a_character_that_a_terminal_obeys(format_: str, style: Style) -> None:
    text = COLOUR.sub("", render(outcome(), format_, style=style))
    text = text.replace(LINK, "").replace("\x1b]8;;\x1b\\", "")
    assert OBEYED.findall(text) == []
    assert "evil" in text


@pytest.mark.parametrize("format_", STATISTICS)
def test_no_count_has_one(format_: str) -> None:
    assert OBEYED.findall(render(outcome(), format_, counts=True)) == []


def test_places_and_edits_are_what_they_were() -> None:
    (first, _) = json.loads(render(outcome(), "json"))["findings"]
    assert first["path"] == f"a{EVIL}\n.py"
    assert [edit["text"] for edit in first["fix"]["edits"]] == ["good()"]


def test_a_diff_is_exact_for_programs_and_escaped_for_terminals() -> None:
    changes = Changes(outcome(), ((SOURCE, SOURCE.edited("good()\n")),), ())
    assert f"-{SOURCE.text}" in diff(changes, plain)
    assert OBEYED.findall(diff(changes, plain, exact=False)) == []
