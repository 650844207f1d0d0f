"""The options of `check` that users of Ruff know."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_cli import BAD, CLEAN, FIXED, IDLE, LINE, Ran, concise, here, run

from fsdplint.rules import RULES
from fsdplint.settings.config import load_settings

__all__ = ["here"]  # a fixture

ADVICE = """\
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group("nccl")
model = fully_shard(nn.Linear(8, 8))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
model(torch.ones(1, 8)).mean().backward()
optimizer.step()
"""
LEFT = "x = 1  # fsdplint: ignore[nope]\n"


def codes(ran: Ran) -> list[str]:
    return [line.split()[1] for line in ran.out.splitlines() if line.startswith("a.py:")]


@pytest.mark.parametrize(
    ("options", "code", "found"),
    [
        ([], 0, []),
        (["--select=ALL"], 0, []),
        (["--pedantic"], 0, ["FSD107"]),
        (["--select=FSD1", "--pedantic"], 0, ["FSD107"]),
        (["--select=FSD107"], 0, ["FSD107"]),
        (["--extend-select=process-group-not-destroyed"], 0, ["FSD107"]),
        (["--pedantic", "--fail-on=note"], 1, ["FSD107"]),
        (["--pedantic", "--fail-on=note", "--exit-zero"], 0, ["FSD107"]),
        (["--fail-on=note"], 0, []),
    ],
)
def test_notes_are_reported_on_request_and_fail_on_request(
    here: Path, options: list[str], code: int, found: list[str]
) -> None:
    (here / "a.py").write_text(ADVICE)
    ran = concise("--ignore=device-not-set", *options)
    assert (ran.code, codes(ran)) == (code, found)


def test_the_settings_turn_notes_on(here: Path) -> None:
    (here / "a.py").write_text(ADVICE)
    (here / "fsdplint.toml").write_text("pedantic = true\nignore = ['FSD101']\n")
    ran = concise()
    assert (ran.code, codes(ran)) == (0, ["FSD107"])
    with (here / "fsdplint.toml").open("a") as file:
        file.write("fail-on = 'note'\n")
    assert concise().code == 1
    assert concise("--fail-on=warning").code == 0


@pytest.mark.parametrize(
    ("text", "least", "code"),
    [
        (IDLE, "note", 1),
        (IDLE, "warning", 1),
        (IDLE, "error", 0),
        (BAD, "error", 1),
        (BAD, "note", 1),
    ],
)
def test_a_run_fails_on_the_severity_that_is_asked_for(
    here: Path, text: str, least: str, code: int
) -> None:
    (here / "a.py").write_text(text)
    assert concise(f"--fail-on={least}").code == code
    (here / "fsdplint.toml").write_text(f"fail-on = '{least}'\n")
    assert concise().code == code


def test_each_project_fails_on_what_its_settings_say(here: Path) -> None:
    for name, least in (("lax", "error"), ("strict", "warning")):
        (here / name).mkdir()
        (here / name / "a.py").write_text(FIXED)
        (here / name / "fsdplint.toml").write_text(f"fail-on = '{least}'\n")
    (here / "lax/a.py").write_text(IDLE)
    assert concise("lax", "strict").code == 0
    (here / "strict/a.py").write_text(IDLE)
    assert concise("lax", "strict").code == 1
    (here / "lax/a.py").write_text(FIXED)
    assert concise("lax", "strict").code == 1


def test_quiet_prints_findings_and_nothing_else(here: Path) -> None:
    (here / "a.py").write_text(IDLE)
    assert concise("--quiet") == Ran(1, f"a.py:1:8: {LINE}\n", "")
    full = run("check", "-q").out
    assert full.splitlines()[-1] == "  = page: fsdplint explain unused-suppression"
    assert run("check").out == f"{full}\nFound 1 finding in 1 file (1 fixable with --fix); " + (
        "1 file without sharding.\n"
    )
    assert concise("-q", "--statistics").out == "1 FSD002 [*] unused-suppression\n"
    assert concise("-q", "--diff").err == ""
    assert concise("-q", "--fix") == Ran(0, "", "")
    assert concise("-q") == run("check", "-q") == Ran(0, "", "")


def test_quiet_still_prints_errors(here: Path) -> None:
    (here / "a.py").write_text(LEFT)
    ran = concise("-q", "--fix", "a.py", "gone.py")
    assert ran.code == 2
    assert ran.err == "fsdplint: gone.py: no such file or folder\n"
    assert [line.split()[1] for line in ran.out.splitlines()] == ["FSD002"]


def test_verbose_prints_where_the_settings_are_and_how_each_file_ends(here: Path) -> None:
    (here / "a.py").write_text(BAD)
    (here / "b.py").write_text(FIXED)
    (here / "fsdplint.toml").write_text("target-torch = '>=2.6,<2.9.1'\nselect = ['FSD302']\n")
    found = concise()
    ran = concise("-v")
    assert ran == Ran(
        1,
        found.out,
        f"fsdplint: settings for .: {here}/fsdplint.toml\n"
        "fsdplint: PyTorch: >=2.6,<2.9.1\n"
        f"fsdplint: rules: 2 of {len(RULES)}\n"
        "fsdplint: a.py: checked\n"
        "fsdplint: b.py: irrelevant: not part of a program that shards\n",
    )
    (here / "fsdplint.toml").unlink()
    (here / "requirements.txt").write_text("torch>=2.8\n")
    assert concise("--verbose", "--isolated", "a.py", "b.py").err.splitlines()[:2] == [
        "fsdplint: settings for a.py and 1 more: none found, so the defaults",
        "fsdplint: PyTorch: every release",
    ]
    assert concise("--verbose").err.splitlines()[1] == "fsdplint: PyTorch: >=2.8 (requirements.txt)"
    message = "fsdplint: --quiet cannot be combined with --verbose\n"
    assert concise("-q", "-v") == Ran(2, "", message)


def listed(*options: str) -> list[str]:
    """The names of the files that `check` lists."""
    ran = run("check", "--show-files", *options)
    assert (ran.code, ran.err) == (0, "")
    base = f"{Path.cwd()}/"
    return [line.removeprefix(base) for line in ran.out.splitlines()]


@pytest.mark.parametrize(
    ("options", "files"),
    [
        ([], ["a.py", "b.py", "sub/b.py"]),
        (["--exclude=b.py"], ["a.py", "old/a.py"]),
        (["--exclude=/b.py", "--exclude", "old"], ["a.py", "sub/b.py"]),
        (["--exclude=/b.py, sub"], ["a.py", "old/a.py"]),
        (["--extend-exclude=sub/"], ["a.py", "b.py"]),
        (["--exclude=sub", "--extend-exclude=/a.py"], ["b.py", "old/a.py"]),
        (["--isolated"], ["a.py", "b.py", "old/a.py", "sub/b.py"]),
        (["sub"], ["sub/b.py"]),
        (["sub/b.py", "--exclude=b.py"], ["sub/b.py"]),
        (["sub/b.py", "a.py", "--exclude=b.py", "--force-exclude"], ["a.py"]),
    ],
)
def test_files_are_listed_and_excluded(here: Path, options: list[str], files: list[str]) -> None:
    for name in ("a.py", "b.py", "old/a.py", "sub/b.py"):
        (here / name).parent.mkdir(exist_ok=True)
        (here / name).write_text(IDLE)
    (here / "fsdplint.toml").write_text("exclude = ['/old/*']\n")
    assert listed(*options) == files
    checked = [line.split(":")[0] for line in concise("-q", *options).out.splitlines()]
    assert checked == files


def test_files_that_cannot_be_listed_fail(here: Path) -> None:
    (here / "a.py").write_text(FIXED)
    ran = run("check", "--show-files", "a.py", "gone.py")
    assert ran == Ran(2, f"{here}/a.py\n", "fsdplint: gone.py: no such file or folder\n")
    assert listed("-", "--stdin-filename=new.py") == ["new.py"]


def test_a_wrong_pattern_is_one_line(here: Path) -> None:
    (here / "a.py").write_text(FIXED)
    ran = run("check", "--exclude=!")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert ran.err.startswith("fsdplint: --exclude: ")


SETTINGS = """\
select = ["FSD3"]
extend-select = ["FSD404"]
ignore = ["FSD302"]
exclude = ["/old \\"ones\\""]
target-torch = ">=2.6,<2.14"
output-format = "concise"
baseline = "known.json"
pedantic = true
fail-on = "error"
[per-file-ignores]
"tests/*" = ["FSD301"]
"""


def test_the_settings_that_are_shown_are_those_that_count(here: Path) -> None:
    (here / "a.py").write_text(FIXED)
    (here / "known.json").write_text('{"version": 1, "findings": []}')
    file = here / "fsdplint.toml"
    file.write_text(SETTINGS)
    ran = run("check", "--show-settings", "--strict", "--preview", "--no-baseline")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[:2] == ["# Settings for .", f"# File: {file}"]
    assert f'  "/old \\U00000022ones\\U00000022",  # in {here}\n' in ran.out
    file.write_text(f"strict = true\npreview = true\n{SETTINGS}")
    expected = load_settings(file)
    file.write_text(ran.out)
    assert load_settings(file) == expected


def test_settings_are_shown_for_each_project(here: Path) -> None:
    for name in ("one", "two"):
        (here / name).mkdir()
        (here / name / "a.py").write_text(FIXED)
    (here / "two/fsdplint.toml").write_text("select = ['direct-forward']\n")
    ran = run("check", "one", "two", "--show-settings", "--select=FSD301", "--fail-on=error")
    assert ran == Ran(
        0,
        """\
# Settings for one
# File: none found, so the defaults
select = [
  "invalid-syntax",
  "optimizer-before-sharding",
]
exclude = []
output-format = "full"
preview = false
pedantic = false
strict = false
fail-on = "error"

# Settings for two
# File: HERE/two/fsdplint.toml
select = [
  "invalid-syntax",
  "optimizer-before-sharding",
]
exclude = []
output-format = "full"
preview = false
pedantic = false
strict = false
fail-on = "error"
""".replace("HERE", str(here)),
        "",
    )


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--fix"], 1),
        (["--fix-only"], 0),
        (["--fix", "--exit-non-zero-on-fix"], 1),
        (["--fix-only", "--exit-non-zero-on-fix"], 1),
        (["--fix-only", "--exit-non-zero-on-fix", "--exit-zero"], 0),
    ],
)
def test_exit_codes_of_fixes_with_findings_left(here: Path, options: list[str], code: int) -> None:
    (here / "a.py").write_text(IDLE + LEFT)
    assert concise(*options).code == code
    assert (here / "a.py").read_text() == FIXED + LEFT
    again = 0 if "--fix-only" in options else code
    assert concise(*options).code == again


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--fix"], 0),
        (["--fix", "--exit-non-zero-on-fix"], 1),
        (["--fix-only", "--exit-non-zero-on-fix"], 1),
    ],
)
def test_exit_codes_of_fixes_with_none_left(here: Path, options: list[str], code: int) -> None:
    (here / "a.py").write_text(IDLE)
    assert concise(*options).code == code
    assert concise(*options) == Ran(0, "" if "--fix-only" in options else CLEAN, "")


def test_fix_only_prints_what_it_did_and_no_findings(here: Path) -> None:
    (here / "a.py").write_text(IDLE + LEFT)
    shown = concise("--fix-only", "--diff")
    assert (shown.code, shown.err) == (1, "Would fix 1 finding.\n")
    assert shown.out.splitlines()[3:5] == [f"-{IDLE[:-1]}", f"+{FIXED[:-1]}"]
    assert concise("-", "--fix-only", stdin=IDLE) == Ran(0, FIXED, "Fixed 1 finding.\n")
    assert concise("--fix-only") == Ran(0, "", "Fixed 1 finding.\n")
    assert concise("--fix-only", "--diff") == Ran(0, "", "")
    (here / "bad.py").write_bytes(b"\xff")
    assert concise("--fix-only").code == 2
    refused = "fsdplint: --fix-only prints no report, so none can go to a file\n"
    assert concise("--fix-only", "--output-file=x") == Ran(2, "", refused)
    assert concise("--fix-only", "--output-format=json=x") == Ran(2, "", refused)
