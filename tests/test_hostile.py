"""No hostile file or command line crashes a run, hangs it, or lets it end with a clean face."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_cli import run

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
