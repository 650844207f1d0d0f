from __future__ import annotations

import json
import re
from dataclasses import replace
from textwrap import dedent

import pytest

from fsdplint.files.decoding import SourceError
from fsdplint.files.file import SourceFile, from_bytes, from_text
from fsdplint.finding import EarlyStop, Edit, Evidence, Finding, Fix, Safety, Severity, Span
from fsdplint.outcome import Account, Outcome, State
from fsdplint.report import render
from fsdplint.report.style import Style
from fsdplint.urls import rule_url

TRAIN = from_text(
    dedent(
        """\
        import torch
        from shard import apply_fsdp

        model = build()
        optim = torch.optim.AdamW(model.parameters(), lr=3e-4)

        apply_fsdp(model)
        """
    ),
    "/work/train.py",
)
SHARD = from_text("def apply_fsdp(m):\n\tfully_shard(m)\n", "/work/lib/shard.py")


def span(source: SourceFile, code: str) -> Span:
    start = source.text.index(code)
    return Span(source.path, start, start + len(code))


def finding(
    source: SourceFile, code: str, *evidence: Evidence, fix: Fix | None = None, declined: str = ""
) -> Finding:
    return Finding(
        "optimizer-before-sharding",
        "FSD301",
        Severity.ERROR,
        "`AdamW` holds what is replaced",
        span(source, code),
        "built here",
        evidence,
        fix,
        declined,
    )


def outcome(
    *findings: Finding, failures: tuple[SourceError, ...] = (), **more: SourceFile
) -> Outcome:
    sources = {source.path: source for source in (TRAIN, SHARD, *more.values())}
    return Outcome(findings, sources, failures, "/work")


ADAMW = "torch.optim.AdamW(model.parameters(), lr=3e-4)"
FIX = Fix("move it", Safety.UNSAFE, (Edit(span(TRAIN, "optim = "), ""),))
SAFE = Fix("move it", Safety.SAFE, FIX.edits)


def test_full_draws_the_place_its_causes_and_other_files() -> None:
    cause = Evidence(span(TRAIN, "apply_fsdp(model)"), "sharded by this call")
    inner = Evidence(span(SHARD, "fully_shard(m)"), "parameters become DTensors here")
    found = finding(TRAIN, ADAMW, cause, inner, fix=FIX)
    assert render(outcome(found), "full") == dedent(
        """\
        train.py:5:9: FSD301 [*] optimizer-before-sharding: `AdamW` holds what is replaced
          |
        5 | optim = torch.optim.AdamW(model.parameters(), lr=3e-4)
          |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ built here
        6 |
        7 | apply_fsdp(model)
          | ----------------- sharded by this call
         --> lib/shard.py:2:2
          |
        2 |     fully_shard(m)
          |     -------------- parameters become DTensors here
          |
          = fix (unsafe): move it
          = page: fsdplint explain optimizer-before-sharding

        Found 1 finding in 1 file (1 fixable with --fix --unsafe-fixes).
        """
    )


def test_full_leaves_out_lines_in_between_and_says_why_there_is_no_fix() -> None:
    cause = Evidence(span(TRAIN, "import torch"), "")
    found = finding(TRAIN, ADAMW, cause, declined="the optimizer is used before")
    assert render(outcome(found), "full") == dedent(
        """\
        train.py:5:9: FSD301 optimizer-before-sharding: `AdamW` holds what is replaced
          |
        1 | import torch
          | ------------
        ...
        5 | optim = torch.optim.AdamW(model.parameters(), lr=3e-4)
          |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ built here
          |
          = no fix: the optimizer is used before
          = page: fsdplint explain optimizer-before-sharding

        Found 1 finding in 1 file.
        """
    )


def test_marks_on_one_line_are_drawn_below_each_other() -> None:
    found = finding(TRAIN, ADAMW, Evidence(span(TRAIN, "model.parameters()"), "captured"))
    assert render(outcome(found), "full").splitlines()[2:5] == [
        "5 | optim = torch.optim.AdamW(model.parameters(), lr=3e-4)",
        "  |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ built here",
        "  |                           ------------------ captured",
    ]


@pytest.mark.parametrize(
    ("text", "code", "drawn", "carets"),
    [
        ("\tx = bad()", "bad()", "    x = bad()", "        ^^^^^"),
        ("'世界', bad()", "bad()", "'世界', bad()", "        ^^^^^"),
        ("'e\u0301', bad()", "bad()", "'e\u0301', bad()", "     ^^^^^"),
        ("'\x1b[31m', bad()", "bad()", r"'\x1b[31m', bad()", "            ^^^^^"),
        ("'\u202e', bad()", "bad()", r"'\u202e', bad()", "          ^^^^^"),
        ("bad(\n  x,\n)", "bad(\n  x,\n)", "bad(", "^^^^"),
        ("x\n", "\n", "x", " ^"),
        ("世", "世", "世", "^^"),
        ("bad()   \r\ny", "bad()   \r\ny", "bad()", "^^^^^"),
    ],
)
def test_marks_stand_under_their_code(text: str, code: str, drawn: str, carets: str) -> None:
    source = from_text(text, "/work/a.py")
    lines = render(outcome(finding(source, code), a=source), "full").splitlines()
    assert lines[2] == f"1 | {drawn}"
    assert lines[3] == f"  | {carets} built here"


def test_an_empty_file_can_be_drawn() -> None:
    source = from_text("", "/work/a.py")
    lines = render(outcome(finding(source, ""), a=source), "full").splitlines()
    assert lines[2:4] == ["1 |", "  | ^ built here"]


def test_long_lines_are_cut_around_the_mark() -> None:
    source = from_text("x" * 500 + " bad() " + "y" * 500, "/work/a.py")
    lines = render(outcome(finding(source, "bad()"), a=source), "full").splitlines()
    assert lines[2] == "1 | …" + "x" * 29 + " bad() " + "y" * 84 + "…"
    assert lines[3] == "  | " + " " * 31 + "^^^^^ built here"


def test_a_mark_outside_a_cut_line_is_drawn_at_its_edge() -> None:
    source = from_text("first " + "x" * 500 + " bad()", "/work/a.py")
    found = finding(source, "bad()", Evidence(span(source, "first"), "cause"))
    lines = render(outcome(found, a=source), "full").splitlines()
    assert lines[2] == "1 | …" + "x" * 29 + " bad()"
    assert lines[4] == "  |  - cause"


def test_concise() -> None:
    found = (finding(TRAIN, ADAMW, fix=SAFE), finding(SHARD, "fully_shard(m)"))
    assert render(outcome(*found), "concise") == dedent(
        """\
        train.py:5:9: FSD301 [*] optimizer-before-sharding: `AdamW` holds what is replaced
        lib/shard.py:2:2: FSD301 optimizer-before-sharding: `AdamW` holds what is replaced
        Found 2 findings in 2 files (1 fixable with --fix).
        """
    )


def test_safe_and_unsafe_fixes_are_counted_apart() -> None:
    found = (finding(TRAIN, ADAMW, fix=SAFE), finding(TRAIN, ADAMW, fix=FIX))
    assert render(outcome(*found), "concise").splitlines()[-1] == (
        "Found 2 findings in 1 file (1 fixable with --fix, 1 more with --fix --unsafe-fixes)."
    )


def test_files_that_were_not_checked_are_counted() -> None:
    unread = (SourceError("/work/x.py", "gone"), SourceError("/work/x.py", "twice"))
    missing = SourceError("/work/gone", "no such file or folder")
    accounts = (
        Account("/work/pipe.py", State.SKIPPED, "a named pipe, not a regular file"),
        Account("/work/x.py", State.FAILED, "twice"),
        Account("/work/y.py", State.IRRELEVANT, "not part of a program that shards"),
        Account("/work/z.py", State.CHECKED),
    )
    clean = Outcome((), {}, (*unread, missing), "/work", accounts=accounts)
    assert render(clean, "full") == (
        "No findings in 2 files (1 without sharding); 1 file skipped; 1 file could not be checked; "
        "1 path could not be checked.\n"
    )
    found = replace(outcome(finding(TRAIN, ADAMW)), accounts=accounts)
    assert render(found, "concise").splitlines()[-1] == (
        "Found 1 finding in 1 file; 1 file without sharding; 1 file skipped; "
        "1 file could not be checked."
    )


def test_paths_are_printable_and_relative_to_the_base_alone() -> None:
    elsewhere = from_text("x", "/workshop/a\n\x1b.py")
    text = render(outcome(finding(elsewhere, "x"), a=elsewhere), "concise")
    assert text.startswith(r"/workshop/a\n\x1b.py:1:1: FSD301")


def test_notebooks_are_located_by_cell() -> None:
    cells = [{"cell_type": "code", "source": [f"x{n}\n", f"bad{n}()\n"]} for n in (1, 2)]
    source = from_bytes(json.dumps({"cells": cells, "metadata": {}}).encode(), "/work/a.ipynb")
    found = finding(source, "bad2()", Evidence(span(source, "bad1()"), "cause"))
    shown = render(outcome(found, a=source), "full")
    assert shown.startswith("a.ipynb:cell 2:2:1: FSD301 ")
    assert shown.splitlines()[1:8] == [
        "  |",
        "2 | bad2()",
        "  | ^^^^^^ built here",
        " --> a.ipynb:cell 1:2:1",
        "  |",
        "2 | bad1()",
        "  | ------ cause",
    ]
    document = json.loads(render(outcome(found, a=source), "json"))
    assert document["findings"][0]["start"] == {"cell": 2, "line": 2, "column": 1}


def test_json() -> None:
    found = finding(TRAIN, ADAMW, Evidence(span(SHARD, "fully_shard(m)"), "here"), fix=FIX)
    unread = (SourceError("/work/x.py", "gone"),)
    partly = (EarlyStop("/work/train.py", "main", "more than 200 paths"),)
    accounts = (
        Account("/work/train.py", State.CHECKED),
        Account("/work/x.py", State.FAILED, "gone"),
    )
    whole = replace(outcome(found, failures=unread), partly=partly, accounts=accounts)
    assert json.loads(render(whole, "json")) == {
        "version": 1,
        "summary": "Found 1 finding in 1 file (1 fixable with --fix --unsafe-fixes); 1 file could "
        "not be checked; analysis of 1 program stopped early.",
        "known": 0,
        "checked": 1,
        "findings": [
            {
                "rule": "optimizer-before-sharding",
                "code": "FSD301",
                "severity": "error",
                "url": rule_url("optimizer-before-sharding"),
                "message": "`AdamW` holds what is replaced",
                "label": "built here",
                "path": "train.py",
                "start": {"line": 5, "column": 9},
                "end": {"line": 5, "column": 55},
                "evidence": [
                    {
                        "note": "here",
                        "path": "lib/shard.py",
                        "start": {"line": 2, "column": 2},
                        "end": {"line": 2, "column": 16},
                    }
                ],
                "fix": {
                    "title": "move it",
                    "safety": "unsafe",
                    "edits": [
                        {
                            "text": "",
                            "path": "train.py",
                            "start": {"line": 5, "column": 1},
                            "end": {"line": 5, "column": 9},
                        }
                    ],
                },
                "fix_declined": None,
            }
        ],
        "failures": [{"path": "x.py", "reason": "gone"}],
        "partly": [{"path": "train.py", "name": "main", "reason": "more than 200 paths"}],
        "files": [
            {"path": "train.py", "state": "checked", "reason": None},
            {"path": "x.py", "state": "failed", "reason": "gone"},
        ],
    }


def test_compact() -> None:
    notebook = from_bytes(
        b'{"cells": [{"cell_type": "code", "source": "f(\\n1)"}], "nbformat": 4}', "/work/a.ipynb"
    )
    here = Evidence(span(SHARD, "fully_shard(m)"), "shards\nit here")
    found = (
        finding(TRAIN, ADAMW, here, Evidence(span(TRAIN, ADAMW), "kept"), fix=FIX),
        replace(finding(notebook, "1", declined="2 callers differ"), message="wrong:\n  `f(\n1)`"),
    )
    unread = (SourceError("/work/x.py", "gone"),)
    partly = (EarlyStop("/work/train.py", "main", "more than 200 paths"),)
    whole = replace(outcome(*found, failures=unread, a=notebook), partly=partly)
    assert render(whole, "compact").splitlines() == [
        '{"version": 1, "summary": "Found 2 findings in 2 files (1 fixable with --fix '
        '--unsafe-fixes); 1 path could not be checked; analysis of 1 program stopped early.", '
        '"findings": [',
        '{"rule": "optimizer-before-sharding", "severity": "error", "at": "train.py:5:9", '
        '"message": "`AdamW` holds what is replaced", "evidence": ["lib/shard.py:2:2: shards it '
        'here", "train.py:5:9: kept"], "fix": {"title": "move it", "safety": "unsafe"}, '
        '"fix_declined": null},',
        '{"rule": "optimizer-before-sharding", "severity": "error", "at": "a.ipynb:cell 1:2:1", '
        '"message": "wrong: `f( 1)`", "evidence": [], "fix": null, "fix_declined": "2 callers '
        'differ"}], "failures": ["x.py: gone"], "partly": ["analysis of `train.py:main` stopped '
        'early (more than 200 paths): findings may be missing"]}',
    ]


def test_compact_without_findings() -> None:
    assert render(outcome(), "compact") == (
        '{"version": 1, "summary": "No findings in 0 files.", "findings": [], "failures": [], '
        '"partly": []}\n'
    )


def test_statistics() -> None:
    found = (finding(TRAIN, ADAMW, fix=FIX), finding(SHARD, "fully_shard(m)"))
    assert render(outcome(*found), "full", counts=True) == (
        "2 FSD301 [ ] optimizer-before-sharding\n"
        "Found 2 findings in 2 files (1 fixable with --fix --unsafe-fixes).\n"
    )
    assert json.loads(render(outcome(*found), "json", counts=True)) == [
        {"code": "FSD301", "rule": "optimizer-before-sharding", "count": 2, "fixable": 1}
    ]


@pytest.mark.parametrize("format_", ["full", "concise"])
def test_colour_changes_nothing_but_colour(format_: str) -> None:
    found = finding(TRAIN, ADAMW, Evidence(span(SHARD, "fully_shard(m)"), "here"), fix=FIX)
    coloured = render(outcome(found), format_, style=Style(color=True))
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == render(outcome(found), format_)


@pytest.mark.parametrize("format_", ["full", "concise"])
def test_the_code_links_to_the_page_of_the_rule(format_: str) -> None:
    linked = render(outcome(finding(TRAIN, ADAMW)), format_, style=Style(links=True))
    url = rule_url("optimizer-before-sharding")
    link = f"\x1b]8;;{url}\x1b\\FSD301\x1b]8;;\x1b\\"
    assert linked.count("\x1b") == link.count("\x1b")
    assert linked.replace(link, "FSD301") == render(outcome(finding(TRAIN, ADAMW)), format_)
