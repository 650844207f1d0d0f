from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from test_cli import IDLE, LINE, Ran, here, run

from fsdplint.cli.outputs import Output, OutputError, outputs
from fsdplint.report import REPORTS

__all__ = ["here"]  # a fixture

NAMES = ", ".join(REPORTS)


@pytest.mark.parametrize(
    ("words", "file", "expected"),
    [
        ((), None, [Output("concise")]),
        ((), "a", [Output("concise", "a")]),
        (("full",), None, [Output("full")]),
        (("full",), "a", [Output("full", "a")]),
        (("json=a=b",), None, [Output("json", "a=b")]),
        (
            ("full", "json=a", "github", "junit=b"),
            None,
            [Output("full"), Output("json", "a"), Output("github"), Output("junit", "b")],
        ),
        (("json=b", "json"), "a", [Output("json", "b"), Output("json", "a")]),
    ],
)
def test_outputs(words: Sequence[str], file: str | None, expected: Sequence[Output]) -> None:
    assert outputs(words, file, "concise") == tuple(expected)


@pytest.mark.parametrize(
    ("words", "file", "message"),
    [
        (("jsn",), None, "unknown output format 'jsn'; did you mean 'json'?"),
        (("xyz=a",), None, f"unknown output format 'xyz'; the formats are {NAMES}"),
        (("",), None, f"unknown output format ''; the formats are {NAMES}"),
        (("json=",), None, "json=: expected a file name, not ''"),
        (("json=-",), None, "json=-: expected a file name, not '-'"),
        (("json",), "-", "--output-file: expected a file name, not '-'"),
        (("json=no/a",), None, "no/a: No such file or directory"),
        (("json=/",), None, "/: Is a directory"),
        (
            ("full", "json"),
            None,
            "json cannot share standard output with another report; use json=FILE",
        ),
        (("github", "full", "github"), None, "github is given twice"),
        (("json=a", "junit=./a"), None, "./a is given twice"),
        (("json=a", "junit"), "a", "a is given twice"),
        (
            ("full", "github"),
            "a",
            "--output-file takes one report; use --output-format NAME=FILE for each",
        ),
        (
            ("json=b",),
            "a",
            "--output-file takes one report; use --output-format NAME=FILE for each",
        ),
    ],
)
def test_bad_combinations(words: Sequence[str], file: str | None, message: str) -> None:
    with pytest.raises(OutputError) as raised:
        outputs(words, file, "full")
    assert str(raised.value) == message


def test_several_at_once(here: Path) -> None:
    (here / "a.py").write_text(IDLE)
    formats = ("concise", "github", "json=out.json", "json-lines=out.jsonl")
    ran = run("check", *(f"--output-format={name}" for name in formats), FORCE_COLOR="1")
    assert (ran.code, ran.err) == (1, "")
    assert ran.out.splitlines()[1:] == [
        "Found 1 finding in 1 file (1 fixable with --fix); 1 file without sharding.",
        f"::warning file={here}/a.py,line=1,endLine=1,col=8,endColumn=42,"
        "title=FSD002 unused-suppression::"
        "a.py:1:8: unused suppression of `direct-forward`: there is no finding here, and the "
        "comment would hide a later one",
    ]
    findings = json.loads((here / "out.json").read_text())["findings"]
    assert [json.loads((here / "out.jsonl").read_text())] == findings
    assert sorted(path.name for path in here.iterdir()) == ["a.py", "out.json", "out.jsonl"]


def test_with_files_alone_nothing_is_printed(here: Path) -> None:
    (here / "a.py").write_text(IDLE)
    assert run("check", "--output-format=concise=out") == Ran(1, "", "")
    assert (here / "out").read_text().splitlines()[0] == f"a.py:1:8: {LINE}"


def test_no_report_replaces_what_the_run_reads(here: Path) -> None:
    (here / "a.py").write_text(IDLE)
    (here / "link.json").symlink_to("a.py")
    (here / "known.json").write_text('{"version": 1, "findings": []}')
    (here / "old.json").write_text("")
    for file in ("a.py", "link.json", "known.json"):
        ran = run("check", "--fix", "--baseline=known.json", f"--output-format=json={file}", "a.py")
        message = f"fsdplint: {file}: the report would overwrite a file that this run reads\n"
        assert ran == Ran(2, "", message)
    assert (here / "a.py").read_text() == IDLE
    assert run("check", "--output-format=json=old.json").code == 1
    (here / "old.link").symlink_to("old.json")
    ran = run("check", "--output-format=json=old.json", "--output-format=sarif=old.link")
    assert ran == Ran(2, "", "fsdplint: old.link is given twice\n")


def test_misuse_is_one_line_before_anything_is_done(here: Path) -> None:
    (here / "a.py").write_text(IDLE)
    ran = run("check", "--fix", "--output-format=json", "--output-format=full")
    assert ran == Ran(
        2, "", "fsdplint: json cannot share standard output with another report; use json=FILE\n"
    )
    message = "fsdplint: --statistics does not support github; use full, concise, json\n"
    assert run("check", "--fix", "--statistics", "--output-format=github") == Ran(2, "", message)
    assert (here / "a.py").read_text() == IDLE
