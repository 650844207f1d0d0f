"""No hostile file or command line crashes a run, hangs it, or lets it end with a clean face."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from test_cli import BAD, Ran, run

from benchmarks.hostile import CASES, FIXED, GOOD, build


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("FSDPLINT_DEBUG", raising=False)
    (tmp_path / "tree").mkdir()
    monkeypatch.chdir(tmp_path / "tree")
    return tmp_path


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_case_ends_as_it_should(here: Path, name: str) -> None:
    case = CASES[name]
    build(case, here / "tree")
    report = here / "report.json"
    ran = run("check", "--output-format=concise", f"--output-format=json={report}", *case.arguments)
    assert ran.code == case.code
    assert (case.said in ran.err) if case.said else (ran.err == "")
    assert ran.err.count("\n") <= 3
    if not report.exists():
        assert (case.good, case.ends, case.found) == (False, {}, {})
        return
    document = json.loads(report.read_text())
    good = {"good.py": ("unused-suppression",)} if case.good else {}
    found: dict[str, tuple[str, ...]] = {}
    for finding in document["findings"]:
        found[finding["path"]] = (*found.get(finding["path"], ()), finding["rule"])
    assert found == {**good, **case.found}
    ends = {file["path"]: (file["state"], file["reason"]) for file in document["files"]}
    ends.pop("good.py", None)
    assert ends == case.ends


NAMES = (
    "::error::a.py",
    " ::add-mask::a.py",
    "##[add-mask]a.py",
    "##vso[task.setvariable variable=a]b.py",
    "a\n::error::b.py",
    "a\u2028::error::b.py",
    "\u202e::error::b.py",
    "::warning::a.txt",
)


def obeyed(ran: Ran) -> list[str]:
    """The lines that a runner of GitHub's, or of Azure's, takes for commands."""
    lines = [line.strip() for line in f"{ran.out}\n{ran.err}".splitlines()]
    return [line for line in lines if line.startswith("::") or re.search(r"##\w*\[", line)]


@pytest.mark.parametrize("name", NAMES)
def test_no_name_of_a_file_is_a_command(here: Path, name: str) -> None:
    (here / "tree" / name).write_bytes(GOOD)
    error = f'File "{name}", line 1\n'
    commands = [
        ["check", name],
        ["check", "--output-format=concise", name],
        ["check", "--output-format=json", name],
        ["check", "--output-format=junit", name],
        ["check", "--output-format=gitlab", name],
        ["check", "--diff", name],
        ["check", f"{name}-"],
        ["inspect", name],
        ["baseline", "write", f"--file={name}", name],
        ["baseline", "write", f"--file={name}.new", name],
        ["explain", "--error=-", name],
        ["check", f"--config={name}", name],
        ["check", f"--select={name}", name],
        ["check", f"--output-format={name}", name],
        ["check", f"--{name}", name],
        [name],
    ]
    for command in commands:
        ran = run(*command, stdin=error)
        assert (obeyed(ran), ran.out + ran.err != "") == ([], True), command
    document = json.loads(run("check", "--output-format=json", name).out)
    assert [finding["path"] for finding in document["findings"]] == [name]
    ran = run("check", "--output-format=github", name)
    assert [line.partition(" ")[0] for line in obeyed(ran)] == ["::warning"]
    assert obeyed(run("check", "--fix", name)) == []


def test_no_code_that_is_shown_is_a_command(here: Path) -> None:
    code = BAD.replace("forward(2)", 'forward("##[stop-commands]x")  # ##[group]y')
    (here / "tree/a.py").write_text(code)
    ran = run("check")
    assert (ran.code, obeyed(ran)) == (1, [])
    assert r'.forward("\x23#[stop-commands]x")  # \x23#[group]y' in ran.out
    for name in ("compact", "json", "json-lines", "gitlab", "rdjson", "sarif"):
        assert obeyed(run("check", f"--output-format={name}")) == []


WRITTEN = {
    "byte order mark": b"\xef\xbb\xbf" + GOOD,
    "CRLF": b"x = 1\r\n" + GOOD.replace(b"\n", b"\r\n"),
    "mixed line ends": b"x = 1\r\ny = 2\r" + GOOD,
    "no final newline": GOOD.rstrip(),
    "lone carriage returns": GOOD.replace(b"\n", b"\r") + b"x = 1\r",
    "latin-1 with a cookie": b"# coding: latin-1\nx = '\xe9'\n" + GOOD,
    "form feed": b"x = 1\n\x0c\n" + GOOD,
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_fix_keeps_every_other_byte(here: Path, name: str) -> None:
    data = WRITTEN[name]
    (here / "tree/a.py").write_bytes(data)
    assert run("check", "--fix").code == 0
    expected = data.replace(GOOD.rstrip(), FIXED.rstrip())
    assert (here / "tree/a.py").read_bytes() == expected != data


def test_a_fix_through_a_link_replaces_the_target_in_one_step_and_keeps_its_mode(
    here: Path,
) -> None:
    target = here / "target.py"
    target.write_bytes(GOOD)
    target.chmod(0o750)
    before = target.stat()
    (here / ".git").mkdir()
    (here / "tree/a.py").symlink_to(target)
    assert run("check", "--fix", "a.py").code == 0
    after = target.stat()
    assert (here / "tree/a.py").is_symlink()
    assert target.read_bytes() == FIXED
    assert after.st_ino != before.st_ino
    assert after.st_mode == before.st_mode
