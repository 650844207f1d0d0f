from __future__ import annotations

import pytest

from fsdplint.finding import Edit, Finding, Fix, Safety, Severity, Span
from fsdplint.fixes.edits import apply, select


def edit(start: int, end: int, text: str, path: str = "/a.py") -> Edit:
    return Edit(Span(path, start, end), text)


def finding(*edits: Edit) -> Finding:
    fix = Fix("do it", Safety.SAFE, edits) if edits else None
    return Finding("rule", "FSD999", Severity.ERROR, "message", edits[0].span, fix=fix)


@pytest.mark.parametrize(
    ("edits", "result"),
    [
        ([], "abcdef"),
        ([edit(0, 1, "X")], "Xbcdef"),
        ([edit(4, 6, "Y"), edit(0, 1, "X")], "XbcdY"),
        ([edit(2, 2, "1"), edit(2, 2, "2")], "ab12cdef"),
        ([edit(2, 4, "X"), edit(2, 2, "1"), edit(4, 4, "2")], "ab1X2ef"),
        ([edit(6, 6, "!")], "abcdef!"),
    ],
)
def test_edits_speak_of_the_text_as_it_was(edits: list[Edit], result: str) -> None:
    assert apply("abcdef", edits) == result


@pytest.mark.parametrize(
    "edits",
    [[edit(0, 3, ""), edit(2, 4, "")], [edit(5, 7, "")], [edit(1, 4, ""), edit(2, 2, "x")]],
)
def test_overlaps_and_strays_are_errors(edits: list[Edit]) -> None:
    with pytest.raises(ValueError, match="overlaps another or leaves the text"):
        apply("abcdef", edits)


def test_the_last_of_two_fixes_that_touch_is_selected() -> None:
    first, second, third = finding(edit(0, 2, "")), finding(edit(2, 3, "")), finding(edit(4, 5, ""))
    assert select([first, second, third]) == [second, third]


def test_all_edits_of_a_fix_count() -> None:
    first = finding(edit(0, 1, ""), edit(9, 9, "import"))
    second = finding(edit(4, 5, ""), edit(9, 9, "import"))
    assert select([first, second]) == [second]


def test_files_do_not_touch_each_other() -> None:
    first, second = finding(edit(0, 2, "")), finding(edit(0, 2, "", path="/b.py"))
    assert select([first, second]) == [first, second]
