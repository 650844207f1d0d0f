"""The driver against a toy linter: a finding per word, each fix one replacement."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from fsdplint.finding import Edit, Finding, Fix, Safety, Severity, Span
from fsdplint.fixes.fixpoint import Fixed, RefusedError, fix_files

PATH = "/a.py"


def finding(path: str, start: int, end: int, text: str, safety: Safety, rule: str) -> Finding:
    edits = (Edit(Span(path, start, end), text),)
    fix = Fix(f"write {text}", safety, edits)
    return Finding(rule, "FSD999", Severity.ERROR, "message", Span(path, start, end), fix=fix)


def replacing(
    table: Mapping[str, str], safety: Safety = Safety.SAFE
) -> Callable[[Mapping[str, str]], Sequence[Finding]]:
    """A linter that reports each word of ``table``, by the word as the rule's name."""

    def lint(texts: Mapping[str, str]) -> list[Finding]:
        return [
            finding(path, match.start(), match.end(), new, safety, word)
            for path, text in texts.items()
            for word, new in table.items()
            for match in re.finditer(rf"\b{word}\b", text)
        ]

    return lint


def rules(fixed: Fixed) -> tuple[list[str], list[str], list[tuple[str, str]]]:
    return (
        [f.rule for f in fixed.findings],
        [f.rule for f in fixed.applied],
        [(d.finding.rule, d.reason) for d in fixed.discarded],
    )


def test_nothing_to_fix() -> None:
    fixed = fix_files({PATH: "a\n"}, replacing({"b": "c"}))
    assert fixed == Fixed({}, (), (), (), True)


def test_all_fixes_of_all_files_are_applied_in_one_pass() -> None:
    calls = []

    def lint(texts: Mapping[str, str]) -> Sequence[Finding]:
        calls.append(dict(texts))
        return replacing({"bad": "good"})(texts)

    fixed = fix_files({PATH: "bad\nbad\n", "/b.py": "bad\n", "/c.py": "fine\n"}, lint)
    assert fixed.texts == {PATH: "good\ngood\n", "/b.py": "good\n"}
    assert rules(fixed) == ([], ["bad"] * 3, [])
    assert len(calls) == 2 and set(calls[1]) == {PATH, "/b.py", "/c.py"}


def test_unsafe_fixes_wait_to_be_asked_for() -> None:
    lint = replacing({"bad": "good"}, Safety.UNSAFE)
    safe = fix_files({PATH: "bad\n"}, lint)
    assert (safe.texts, rules(safe), safe.converged) == ({}, (["bad"], [], []), True)
    unsafe = fix_files({PATH: "bad\n"}, lint, unsafe=True)
    assert (unsafe.texts, rules(unsafe)) == ({PATH: "good\n"}, ([], ["bad"], []))


def test_fixes_that_touch_take_a_pass_each() -> None:
    fixed = fix_files({PATH: "x.y\n"}, replacing({r"x\.": "X.", "y": "Y"}))
    assert fixed.texts == {PATH: "X.Y\n"}
    assert rules(fixed) == ([], ["y", r"x\."], [])


def test_a_fix_that_breaks_the_syntax_is_taken_back_and_others_are_not() -> None:
    table = {"bad": "good", "evil": "(", "late": "fine"}
    fixed = fix_files({PATH: "bad\nevil\nlate\n"}, replacing(table))
    assert fixed.texts == {PATH: "good\nevil\nfine\n"}
    assert rules(fixed) == (
        ["evil"],
        ["bad", "late"],
        [("evil", "the fixed code is not valid Python")],
    )
    assert fixed.converged


def test_what_only_the_compiler_rejects_is_no_valid_python() -> None:
    fixed = fix_files({PATH: "bad\n"}, replacing({"bad": "return"}))
    assert rules(fixed)[2] == [("bad", "the fixed code is not valid Python")]


def test_a_fix_that_changes_the_code_beside_it_is_taken_back() -> None:
    fixed = fix_files({PATH: "bad  ; y\n"}, replacing({"bad": "good #"}))
    reason = "it would change other code, too"
    assert (fixed.texts, rules(fixed)) == ({}, (["bad"], [], [("bad", reason)]))


def test_a_fix_whose_result_cannot_be_judged_is_taken_back_and_others_are_not() -> None:
    def lint(texts: Mapping[str, str]) -> Sequence[Finding]:
        if "evil" not in texts[PATH]:
            raise RefusedError("not looked at")
        return replacing({"bad": "good", "evil": "fine"})(texts)

    fixed = fix_files({PATH: "bad\nevil\n"}, lint)
    assert fixed.texts == {PATH: "good\nevil\n"}
    assert rules(fixed) == (["evil"], ["bad"], [("evil", "not looked at")])


def test_a_text_that_this_python_does_not_know_is_still_fixed() -> None:
    fixed = fix_files({PATH: "bad\nreturn\n"}, replacing({"bad": "good"}))
    assert fixed.texts == {PATH: "good\nreturn\n"}


def test_a_fix_that_leaves_its_finding_is_taken_back() -> None:
    fixed = fix_files({PATH: "bad\n"}, replacing({"bad": "bad  "}))
    assert (fixed.texts, rules(fixed)) == ({}, (["bad"], [], [("bad", "`bad` is still reported")]))


def test_a_fault_that_a_fix_lays_bare_is_fixed_with_it() -> None:
    fixed = fix_files({PATH: "bad\n"}, replacing({"bad": "worse", "worse": "worst"}))
    assert fixed.texts == {PATH: "worst\n"}
    assert rules(fixed) == ([], ["bad", "worse"], [])


def test_a_fix_that_adds_a_finding_without_a_cure_is_taken_back() -> None:
    table = {"bad": "worse", "worse": "worse  "}
    fixed = fix_files({PATH: "bad\n"}, replacing(table))
    assert fixed.texts == {}
    assert rules(fixed)[2] == [("bad", "`worse` is still reported")]


def test_a_fix_that_brings_a_finding_in_the_place_of_another_is_taken_back() -> None:
    def lint(texts: Mapping[str, str]) -> list[Finding]:
        text = texts[PATH]
        if "bad" not in text:  # on `b`, which had none; `a` has none now
            return [replace(finding(PATH, 7, 8, "", Safety.SAFE, "x"), fix=None)]
        other = replace(finding(PATH, 4, 5, "", Safety.SAFE, "x"), fix=None)
        return [finding(PATH, 0, 3, "good", Safety.SAFE, "x"), other]

    fixed = fix_files({PATH: "bad\na\nb\n"}, lint)
    reason = f"it causes a finding of `x` elsewhere in {PATH}"
    assert (fixed.texts, rules(fixed)[2]) == ({}, [("x", reason)])


def test_a_fix_of_another_file_is_taken_back() -> None:
    def lint(_: Mapping[str, str]) -> list[Finding]:
        return [finding("/other.py", 0, 1, "x", Safety.SAFE, "bad")]

    fixed = fix_files({PATH: "bad\n"}, lint)
    reason = "it would edit a file that is not being fixed"
    assert rules(fixed)[2] == [("bad", reason)]


def test_a_fix_whose_edits_overlap_is_taken_back() -> None:
    def lint(_: Mapping[str, str]) -> list[Finding]:
        edits = (Edit(Span(PATH, 0, 2), ""), Edit(Span(PATH, 1, 3), ""))
        fix = Fix("overlap", Safety.SAFE, edits)
        return [Finding("bad", "FSD999", Severity.ERROR, "m", Span(PATH, 0, 3), fix=fix)]

    (discarded,) = fix_files({PATH: "bad\n"}, lint).discarded
    assert discarded.reason.startswith("its edits conflict: ")


def test_a_fix_found_faulty_is_tried_once_more_with_the_others_applied() -> None:
    tries = []

    def lint(texts: Mapping[str, str]) -> Sequence[Finding]:
        tries.append(texts[PATH])
        return replacing({"bad": "better,good", "evil": "evil "})(texts)

    fixed = fix_files({PATH: "evil\nbad\n"}, lint)
    assert fixed.texts == {PATH: "evil\nbetter,good\n"}
    assert rules(fixed) == (["evil"], ["bad"], [("evil", "`evil` is still reported")])
    assert tries == [
        "evil\nbad\n",
        "evil \nbetter,good\n",
        "evil \nbad\n",
        "evil\nbetter,good\n",
        "evil \nbetter,good\n",
    ]
    assert fixed.converged


def test_a_fix_that_holds_once_another_is_applied_is_applied() -> None:
    def lint(texts: Mapping[str, str]) -> Sequence[Finding]:
        found = replacing({"first": "one", "second": "two", "evil": "evil "})(texts)
        too_early = "first" in texts[PATH] and "two" in texts[PATH]
        return [*found, *(replace(f, rule="new", fix=None) for f in found if too_early)]

    fixed = fix_files({PATH: "second\nfirst\nevil\n"}, lint)
    assert fixed.texts == {PATH: "two\none\nevil\n"}
    assert rules(fixed) == (["evil"], ["first", "second"], [("evil", "`evil` is still reported")])


def test_the_tenth_pass_is_the_last() -> None:
    def lint(texts: Mapping[str, str]) -> list[Finding]:
        found = replacing({"bad": "good"})(texts)
        return [*found[:1], *(replace(f, fix=None) for f in found[1:])]

    fixed = fix_files({PATH: "bad\n" * 12}, lint)
    assert fixed.texts == {PATH: "good\n" * 10 + "bad\n" * 2}
    assert not fixed.converged
