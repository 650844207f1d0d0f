from __future__ import annotations

from typing import NamedTuple

import pytest

from fsdplint.files.file import from_text
from fsdplint.finding import Finding, Safety, Severity, Span
from fsdplint.fixes.edits import apply
from fsdplint.knowledge.torch_range import TorchRange
from fsdplint.settings import rule_selection
from fsdplint.suppression import comments
from fsdplint.suppression.comments import suppress


class Rule(NamedTuple):
    name: str
    code: str
    severity: Severity = Severity.ERROR


RULES = (
    Rule("invalid-syntax", "FSD001"),
    Rule("unused-suppression", "FSD002", Severity.WARNING),
    Rule("optimizer-before-sharding", "FSD301"),
    Rule("direct-forward", "FSD302"),
)
ALL = frozenset(rule.name for rule in RULES)


@pytest.fixture(autouse=True)
def rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comments, "RULES", RULES)
    monkeypatch.setattr(rule_selection, "RULES", RULES)


def run(
    text: str, *rules: str, enabled: frozenset[str] = ALL, at: str = "bad("
) -> list[tuple[str, int]]:
    """The rule and line of what is left of a finding of each of ``rules`` at every ``at``."""
    source = from_text(text, "a.py")
    starts = [n for n in range(len(text)) if text.startswith(at, n)]
    codes = {rule.name: rule.code for rule in RULES}
    findings = [
        Finding(rule, codes[rule], Severity.ERROR, "m", Span(source.path, start, start + len(at)))
        for start in starts
        for rule in rules
    ]
    left = suppress(source, findings, enabled)
    return [(finding.rule, source.position(finding.span.start)[0]) for finding in left]


@pytest.mark.parametrize(
    "text",
    [
        "bad(x)  # fsdplint: ignore[direct-forward]\n",
        "bad(x)  # fsdplint: ignore[FSD302]\n",
        "bad(x)  #fsdplint:ignore[fsd302]",
        "bad(x)  # fsdplint: ignore[direct-forward] -- the hooks are not wanted # here\n",
        "bad(x)  # type: ignore # fsdplint: ignore[direct-forward]\n",
        "# fsdplint: ignore[direct-forward]\nbad(x)\n",
        "# fsdplint: ignore[direct-forward]\n# and a word\n\nbad(x)\n",
        "def f():\n    # fsdplint: ignore[direct-forward]\r\n    bad(x)\r\n",
        "y = (\n    bad(x)\n)  # fsdplint: ignore[direct-forward]\n",
        "y = (  # fsdplint: ignore[direct-forward]\n    bad(x)\n)\n",
        "y = (\n    # fsdplint: ignore[direct-forward]\n    bad(x)\n)\n",
        "y = 1 + \\\n    bad(x)  # fsdplint: ignore[direct-forward]\n",
        "bad('''\n''')  # fsdplint: ignore[direct-forward]\n",
        "y\nbad(x)\n# fsdplint: ignore-file[direct-forward]\n",
        "bad(x)  # noqa\n",
        "bad(x)  # NOQA: E501,FSD302\n",
        "bad(x)  # noqa: FSD3\n",
    ],
)
def test_silenced(text: str) -> None:
    assert run(text, "direct-forward") == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("bad('# fsdplint: ignore[direct-forward]')\n", 1),
        ("'''\n# fsdplint: ignore-file[direct-forward]\n'''\nbad(x)\n", 4),
        ("f'{y}# fsdplint: ignore[direct-forward]'; bad(x)\n", 1),
        ("bad(x)  # noqa: E501\n", 1),
        ("# noqa\nbad(x)\n", 2),
        ("bad(x)  # noqalike\n", 1),
    ],
)
def test_not_silenced(text: str, line: int) -> None:
    assert run(text, "direct-forward") == [("direct-forward", line)]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("# fsdplint: ignore[direct-forward]\nok\nbad(x)\n", 3),
        ("with bad(x):  # a\n    # fsdplint: ignore[direct-forward]\n    y\n", 1),
        ("# fsdplint: ignore[direct-forward]\nif x:\n    bad(x)\n", 3),
        ("bad(x)\n# fsdplint: ignore[direct-forward]\n", 1),
    ],
)
def test_out_of_scope_is_unused(text: str, left: int) -> None:
    comment = text[: text.index("# fsdplint")].count("\n") + 1
    assert run(text, "direct-forward") == [
        ("direct-forward", left),
        ("unused-suppression", comment),
    ]


def test_several_rules_in_one_comment() -> None:
    text = "bad(x)  # fsdplint: ignore[direct-forward, FSD301]\n"
    assert run(text, "direct-forward", "optimizer-before-sharding") == []
    assert run(text, "direct-forward") == [("unused-suppression", 1)]


def test_unparsable_text_keeps_its_comments() -> None:
    text = "def f(x) ->:\n    bad(x) 1 ''\n    bad(x) ) '  # fsdplint: ignore[FSD302]\n"
    assert run(text.replace("'  #", "  #"), "direct-forward") == [("direct-forward", 2)]


def test_invalid_syntax_is_never_silent() -> None:
    text = "# fsdplint: ignore-file[invalid-syntax]\nbad(  # noqa\n"
    assert run(text, "invalid-syntax", enabled=frozenset({"invalid-syntax"})) == [
        ("invalid-syntax", 2)
    ]


def test_a_rule_that_did_not_run_may_need_its_comment() -> None:
    text = "ok  # fsdplint: ignore[direct-forward]\n"
    assert run(text) == [("unused-suppression", 1)]
    assert run(text, enabled=ALL - {"direct-forward"}) == []
    assert run(text, enabled=ALL - {"unused-suppression"}) == []


@pytest.mark.parametrize(
    "text",
    [
        "ok  # noqa\n",
        "ok  # noqa: E501\n",
        "bad(x)  # noqa: FSD302\nok  # noqa\n",
        "bad(x)  # noqa: FSD302, E501\n",
        "bad(x)  # noqa: FSD3\n",
        "ok  # noqa: FSD002\n",
        "ok('# noqa: FSD302')\n",
    ],
)
def test_a_noqa_that_is_not_ours_or_that_is_of_use_stays(text: str) -> None:
    assert run(text, "direct-forward") == []


def test_a_noqa_for_a_rule_that_did_not_run_stays() -> None:
    for text in ("ok  # noqa: FSD302\n", "ok  # noqa: FSD3\n"):
        assert run(text) == [("unused-suppression", 1)]
        assert run(text, enabled=ALL - {"direct-forward"}) == []


@pytest.mark.parametrize("code", ["FSD999", "fsd9", "FSD3021"])
def test_a_noqa_with_an_unknown_code_is_reported(code: str) -> None:
    source = from_text(f"x  # FSD noqa\ny  # noqa: {code}, E501\n", "a.py")
    (finding,) = suppress(source, [], ALL)
    message = finding.message.partition("; did you mean")[0]
    assert message.partition("; `fsdplint rules`")[0] == (
        f"invalid suppression comment: unknown rule {code!r}"
    )
    assert (finding.fix, finding.span.start) == (None, source.text.index("# noqa"))


def test_an_unused_comment_may_be_meant() -> None:
    text = "ok  # fsdplint: ignore[direct-forward, unused-suppression]\n"
    assert run(text) == []


@pytest.mark.parametrize(
    ("comment", "message"),
    [
        ("# fsdplint: ignore", "`ignore` needs a rule, for example `ignore[direct-forward]`"),
        ("# fsdplint: ignore[]", "`ignore` needs a rule, for example `ignore[direct-forward]`"),
        ("# fsdplint: ignor[direct-forward]", "unknown directive 'ignor'; did you mean 'ignore'?"),
        (
            "# fsdplint: ignore[direct-foward]",
            "unknown rule 'direct-foward'; did you mean 'direct-forward'?",
        ),
    ],
)
def test_a_comment_that_is_not_understood_is_reported(comment: str, message: str) -> None:
    source = from_text(f"x  {comment}\n", "a.py")
    (finding,) = suppress(source, [], ALL)
    assert finding.message == f"invalid suppression comment: {message}"
    assert finding.fix is None
    assert finding.fix_declined


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x  # fsdplint: ignore[direct-forward]\ny\n", "x\ny\n"),
        ("x  # fsdplint: ignore[direct-forward] -- because\r\ny\r\n", "x\r\ny\r\n"),
        ("x\n\t# fsdplint: ignore[direct-forward]\r\ny\n", "x\ny\n"),
        ("# fsdplint: ignore[direct-forward]", ""),
        ("x  # mine # fsdplint: ignore[direct-forward]\n", "x  # mine\n"),
        ("x  # fsdplint: ignore[direct-forward]  # noqa: E501\n", "x  # noqa: E501\n"),
        ("  # fsdplint: ignore[direct-forward]  # mine\nx\n", "  # mine\nx\n"),
        ("x  # fsdplint: ignore[direct-forward] todo\n", "x  # todo\n"),
        *(
            (f"x  # fsdplint: ignore[direct-forward] -- a reason{blanks}{other}\n", f"x  {other}\n")
            for blanks in (" ", "  ")
            for other in (
                *("# pragma: no cover", "# type: ignore[name]", "# noqa: E501", "#nosec"),
                *("# prose", "# nosec # pylint: disable=all", "# -*- coding: utf-8 -*-"),
            )
        ),
        ("x  # fsdplint: ignore[direct-forward] -- see #42, (#3)\n", "x\n"),
        ("x  # skip # fsdplint: ignore[direct-forward] -- a # nosec\n", "x  # skip # nosec\n"),
        ("x  # noqa: E501 # fsdplint: ignore[direct-forward] W605\n", "x  # noqa: E501 # W605\n"),
        (
            "bad(x)  # fsdplint: ignore[FSD301, direct-forward] -- why\n",
            "bad(x)  # fsdplint: ignore[FSD301] -- why\n",
        ),
        ("x  # noqa: FSD302\ny\n", "x\ny\n"),
        ("x  # NOQA:FSD302,FSD301\n", "x\n"),
        ("x  # noqa: FSD302 -- a reason # type: ignore\n", "x  # type: ignore\n"),
        ("x  # noqa: FSD302 a word\n", "x  # a word\n"),
        ("x  # noqa: FSD302, E501\n", "x  # noqa: E501\n"),
        ("x  # noqa: E501,FSD302\n", "x  # noqa: E501\n"),
        ("x  # noqa: E501 W605,  FSD302,F401 -- why\n", "x  # noqa: E501 W605,F401 -- why\n"),
        ("x  # noqa: FSD302,E501,\tFSD301 W605\r\n", "x  # noqa: E501 W605\r\n"),
        ("x  # mine # noqa: FSD302\n", "x  # mine\n"),
        ("bad(x)  # noqa: FSD301, FSD302\n", "bad(x)  # noqa: FSD301\n"),
    ],
)
def test_the_fix_removes_what_is_unused_and_nothing_else(before: str, after: str) -> None:
    source = from_text(before, "a.py")
    start = before.find("bad(")
    span = Span(source.path, start, start + 3)
    used = Finding("optimizer-before-sharding", "FSD301", Severity.ERROR, "m", span)
    (finding,) = suppress(source, [used] if start >= 0 else [], ALL)
    assert finding.fix is not None
    (edit,) = finding.fix.edits
    assert before[: edit.span.start] + edit.text + before[edit.span.end :] == after


@pytest.mark.parametrize(
    ("rest", "safety"),
    [
        ("-- type: ignore", Safety.SAFE),
        ("# type: ignore", Safety.SAFE),
        ("todo", Safety.SAFE),
        ("type: ignore", Safety.UNSAFE),
        ("pragma: no cover", Safety.UNSAFE),
        ("noqa", Safety.UNSAFE),
        ("-*- coding: latin-1 -*-", Safety.UNSAFE),
    ],
)
def test_words_that_another_tool_would_then_read_are_not_laid_bare(
    rest: str, safety: Safety
) -> None:
    source = from_text(f"# fsdplint: ignore[direct-forward] {rest}\n", "a.py")
    (finding,) = suppress(source, [], ALL)
    assert finding.fix is not None and finding.fix.safety is safety


@pytest.mark.parametrize(
    ("comment", "torch", "silent"),
    [
        ("until torch>=2.9", ">=2.8", True),
        ("until torch>=2.9", ">=2.9", False),
        ("until torch >= 2.9.1 -- hooks", ">=2.9", True),
        ("until torch>=2", ">=2.9", False),
        ("until torch>=2.13 -- hooks", ">=0", False),
        ("until torch>=2.14 -- until torch>=2.9", ">=0", True),
        ("-- until torch>=2.9", ">=2.9", True),
    ],
)
def test_a_comment_until_a_release_ends_there(comment: str, torch: str, silent: bool) -> None:
    text = f"bad(x)  # fsdplint: ignore[direct-forward] {comment}\n"
    source = from_text(text, "a.py")
    bad = Finding("direct-forward", "FSD302", Severity.ERROR, "m", Span(source.path, 0, 4))
    left = suppress(source, [bad], ALL, TorchRange.parse(torch))
    rules = [finding.rule for finding in left]
    assert rules == ([] if silent else ["direct-forward", "unused-suppression"])
    for finding in left[1:]:
        assert finding.message.startswith("expired suppression: it suppresses nothing on torch 2.")
        assert finding.fix is not None
        assert apply(text, finding.fix.edits) == "bad(x)\n"


@pytest.mark.parametrize("condition", ["2.9", "torch", "torch<2.9", "we fix it", ""])
def test_until_takes_a_release(condition: str) -> None:
    source = from_text(f"x  # fsdplint: ignore[direct-forward] until {condition} -- why\n", "a.py")
    (finding,) = suppress(source, [], ALL)
    reason = "`until` needs a release, for example `until torch>=2.9`"
    assert finding.message == f"invalid suppression comment: {reason}"
