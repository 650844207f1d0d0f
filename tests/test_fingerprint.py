from __future__ import annotations

import re
from textwrap import dedent

import pytest

from fsdplint.files.file import from_text
from fsdplint.finding import Finding, Severity, Span
from fsdplint.fingerprint import Identity, fingerprints, identities, spelling
from fsdplint.outcome import Outcome


def outcome(text: str, code: str = "bad", path: str = "/work/a.py") -> Outcome:
    """An outcome with a finding at each ``code`` in ``text``."""
    source = from_text(dedent(text), path)
    places = [match.span() for match in re.finditer(re.escape(code), source.text)]
    found = [
        Finding("a-rule", "FSD999", Severity.ERROR, "wrong", Span(path, *place)) for place in places
    ]
    return Outcome(tuple(found), {path: source}, (), "/work")


def prints(text: str, code: str = "bad") -> list[str]:
    return list(fingerprints(outcome(text, code)).values())


def codes(text: str, code: str = "bad") -> list[tuple[str, int]]:
    return [(known.code, known.occurrence) for known in identities(outcome(text, code)).values()]


def test_a_fingerprint_does_not_change_between_releases() -> None:
    assert prints("x = bad(1)\n") == ["df62d2b1c39821a028bc82a3a023cd98"]


@pytest.mark.parametrize(
    "text",
    [
        "import os\n\n\nx = bad(1, 'a  b')\n",
        "if y:\n    x = bad(1, 'a  b')  # why\n",
        "x=bad(1,'a  b')\n",
        "x = bad(\r\n    1,  # one, (\r\n    'a  b',\r\n)\r\n",
        "x = \\\n    bad( 1, 'a  b' )\n",
        'x = bad(1, "a  b")\n',
        "x = (\n    bad(1, 'a  b')\n)\n",
        "x = good(1, 'a  b')\nx = bad(1, 'a  b')",
    ],
)
def test_moves_and_formatting_make_no_difference(text: str) -> None:
    assert prints(text) == prints("x = bad(1, 'a  b')\n")


@pytest.mark.parametrize(
    "text", ["x = bad(1, 'a b')\n", "x = bad(2, 'a  b')\n", "y = bad(1, 'a  b')\n", "xx = bad\n"]
)
def test_other_statements_differ(text: str) -> None:
    assert prints(text) != prints("x = bad(1, 'a  b')\n")


def test_words_stay_apart() -> None:
    assert spelling("not  a in\tb") == "not a in b"
    assert spelling("f ( not a , ( b , ) )[ 'c' , ]") == 'f not a,b["c"]'
    assert spelling("with (a):") == spelling("with a :") == "with a:"
    assert spelling("return(not(a))") == "return not a"
    assert spelling(spelling("x = ' ,) ' , [ 1, ]")) == spelling("x = ' ,) ' , [ 1, ]")


def test_equal_ones_are_counted_from_the_top() -> None:
    found = codes("bad()\nf(bad, bad)\nbad( )\n")
    assert found == [("bad()", 1), ("f(bad, bad)", 1), ("f(bad, bad)", 2), ("bad()", 2)]
    assert len(set(prints("bad()\n" * 9))) == 9


def test_the_order_of_an_outcome_is_kept_and_does_not_matter() -> None:
    forth = outcome("bad()\nbad()\n")
    back = Outcome(forth.findings[::-1], forth.sources, (), "/work")
    assert list(fingerprints(back)) == list(back.findings)
    assert fingerprints(back) == fingerprints(forth)


def test_rules_and_paths_differ() -> None:
    one = outcome("bad()\n")
    moved = outcome("bad()\n", path="/work/b.py")
    assert set(fingerprints(one).values()).isdisjoint(fingerprints(moved).values())
    [known] = identities(one, "/work/settings").values()
    assert known == Identity("../a.py", "a-rule", "bad()", 1)


def test_code_is_shown_on_one_line_as_it_is_read() -> None:
    text = "optim = AdamW(\n    bad(),  # their parameters\n    lr=3e-4,\n)\n"
    assert codes(text) == [("optim = AdamW(bad(), lr=3e-4)", 1)]


def test_a_comment_is_known_by_itself() -> None:
    text = "x = 1  # fsdplint: ignore[nope]\n"
    assert codes(text, "# fsdplint: ignore[nope]") == [("# fsdplint: ignore[nope]", 1)]


def test_of_a_long_statement_only_the_finding_counts() -> None:
    def train(lr: str) -> str:
        return f"main(bad(x), lr={lr}, {', '.join(f'option_{n}={n}' for n in range(40))})\n"

    assert codes(train("1"), "bad(x)") == [("bad(x)", 1)]
    assert prints(train("1"), "bad(x)") == prints(train("2"), "bad(x)")
    whole = train("1").strip()
    assert codes(whole, whole) == [(whole, 1)]


def test_text_that_is_not_python_has_fingerprints_too() -> None:
    assert codes("def f(:\n'''bad") == [("def f(: '''bad", 1)]
    assert codes("", "") == [("", 1)]
