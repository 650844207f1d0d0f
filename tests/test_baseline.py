from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_cli import FIXED, IDLE, LINE, PREVIEW, Ran, concise, here, run

__all__ = ["here"]  # a fixture

OTHER = "y = 2  # fsdplint: ignore[no-sync-under-fsdp2]\n"
NAME = "fsdplint-baseline.json"
HINT = f'To use it, pass --baseline {NAME} or set baseline = "{NAME}".\n'
KNOWN = "No findings in 1 file (1 without sharding); 1 more in the baseline.\n"


def entry(
    path: str = "a.py", rule: str = "direct-forward", occurrence: int = 1
) -> dict[str, object]:
    code = f"# fsdplint: ignore[{rule}]"
    known: dict[str, object] = {"path": path, "rule": "unused-suppression", "code": code}
    return {**known, "occurrence": occurrence} if occurrence > 1 else known


def entries(file: str = NAME) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(Path(file).read_text())["findings"]
    return found


def save(*findings: dict[str, object], version: int = 1) -> None:
    Path(NAME).write_text(json.dumps({"version": version, "findings": findings}))


def against(*arguments: str, file: str = NAME) -> Ran:
    return concise(f"--baseline={file}", *arguments)


def gone(what: str, file: str = NAME) -> str:
    return f"fsdplint: {file}: {what}; run `fsdplint baseline prune` to remove\n"


def test_a_project_adopts_and_only_new_findings_fail(here: Path) -> None:
    (here / "a.py").write_text(IDLE)
    ran = run("baseline", "write")
    assert ran == Ran(0, f"{NAME}: 1 finding (1 added, 0 removed).\n{HINT}", "")
    assert against() == Ran(0, KNOWN, "")
    (here / "a.py").write_text(OTHER + "import os\n" + IDLE)
    ran = against()
    assert (ran.code, ran.err) == (1, "")
    assert ran.out.splitlines() == [
        f"a.py:1:8: {LINE.replace('direct-forward', 'no-sync-under-fsdp2')}",
        "Found 1 finding in 1 file (1 fixable with --fix); 1 more in the baseline; "
        "1 file without sharding.",
    ]


@pytest.mark.parametrize(
    ("options", "recorded"),
    [
        ([], []),
        (["--pedantic"], []),
        (["--preview"], []),
        (["--pedantic", "--preview"], ["low-precision-reduce"]),
    ],
)
def test_the_rules_that_options_turn_on_are_recorded(
    here: Path, options: list[str], recorded: list[str]
) -> None:
    (here / "train.py").write_text(PREVIEW)
    assert run("baseline", "write", *options).code == 0
    assert [each["rule"] for each in entries()] == recorded
    (here / "train.py").write_text("")
    assert run("baseline", "prune").code == 0
    assert [each["rule"] for each in entries()] == recorded
    assert run("baseline", "prune", *options).code == 0
    assert entries() == []


def test_the_file_is_sorted_with_a_finding_on_a_line(here: Path) -> None:
    (here / "b.py").write_text(IDLE)
    (here / "a.py").write_text(IDLE + OTHER + IDLE)
    assert run("baseline", "write").code == 0
    assert (here / NAME).read_text() == (
        "{\n"
        '  "version": 1,\n'
        '  "findings": [\n'
        '    {"path": "a.py", "rule": "unused-suppression",'
        ' "code": "# fsdplint: ignore[direct-forward]"},\n'
        '    {"path": "a.py", "rule": "unused-suppression",'
        ' "code": "# fsdplint: ignore[direct-forward]", "occurrence": 2},\n'
        '    {"path": "a.py", "rule": "unused-suppression",'
        ' "code": "# fsdplint: ignore[no-sync-under-fsdp2]"},\n'
        '    {"path": "b.py", "rule": "unused-suppression",'
        ' "code": "# fsdplint: ignore[direct-forward]"}\n'
        "  ]\n"
        "}\n"
    )


def test_nothing_found_is_a_baseline_too(here: Path) -> None:
    (here / "a.py").write_text(FIXED)
    assert run("baseline", "write").code == 0
    assert (here / NAME).read_text() == '{\n  "version": 1,\n  "findings": []\n}\n'
    assert against().code == 0


def test_one_more_of_equal_findings_is_new(here: Path) -> None:
    (here / "a.py").write_text(IDLE * 2)
    save(entry(), entry())
    assert against().out.splitlines()[0] == f"a.py:2:8: {LINE}"
    save(entry(occurrence=2), entry(occurrence=7))
    assert against().code == 0


def test_what_is_gone_is_said_and_pruned(here: Path) -> None:
    (here / "a.py").write_text(IDLE)
    save(entry(), entry(occurrence=2), entry("gone.py"), {**entry("a.py"), "rule": "no-rule"})
    assert against() == Ran(1, KNOWN, gone("3 findings no longer exist"))
    ran = run("baseline", "prune")
    assert ran == Ran(0, f"{NAME}: 1 finding (0 added, 3 removed).\n", "")
    assert entries() == [entry()]
    assert against() == Ran(0, KNOWN, "")
    (here / "a.py").write_text(FIXED)
    assert against() == Ran(
        1, "No findings in 1 file (1 without sharding).\n", gone("1 finding no longer exists")
    )


def test_pruning_nothing_leaves_the_file(here: Path) -> None:
    (here / "a.py").write_text(IDLE)
    save(entry())
    before = (here / NAME).read_text()
    assert run("baseline", "prune").code == 0
    assert (here / NAME).read_text() == before


def test_what_was_not_looked_for_is_not_gone(here: Path) -> None:
    (here / "a.py").write_text(FIXED)
    (here / "broken.py").write_text("import fully_shard\ndef f(:\n")
    save(entry("sub/b.py"), entry("broken.py"), entry("a.py"))
    assert against("a.py").err == gone("1 finding no longer exists")
    assert against("a.py", "--select=FSD3").err == ""
    assert against("broken.py").err == ""
    assert run("baseline", "prune", "a.py", "broken.py").code == 0
    assert entries() == [entry("broken.py"), entry("sub/b.py")]


def test_nothing_is_gone_if_a_part_failed(here: Path) -> None:
    (here / "a.py").write_bytes(b"\xff")
    save(entry())
    ran = against()
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    before = (here / NAME).read_text()
    for command in ("write", "prune"):
        ran = run("baseline", command)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.splitlines()[1] == (
            f"fsdplint: {NAME}: not written, because not everything could be checked"
        )
    assert (here / NAME).read_text() == before


def test_writing_again_replaces_what_was_looked_for(here: Path) -> None:
    (here / "a.py").write_text(OTHER)
    save(entry(), entry("b.py"))
    ran = run("baseline", "write", "a.py")
    assert ran.out.splitlines()[0] == f"{NAME}: 2 findings (1 added, 1 removed)."
    assert entries() == [entry(rule="no-sync-under-fsdp2"), entry("b.py")]


def test_adding_keeps_what_is_gone(here: Path) -> None:
    (here / "a.py").write_text(OTHER)
    save(entry(), entry(occurrence=5))
    ran = run("baseline", "write", "--add")
    assert ran.out.splitlines()[0] == f"{NAME}: 3 findings (2 added, 1 removed)."
    other = entry(rule="no-sync-under-fsdp2")
    assert entries() == [entry(), entry(occurrence=2), other]


def test_a_file_that_does_not_parse_is_never_known(here: Path) -> None:
    (here / "a.py").write_text("import fully_shard\ndef f(:\n")
    ran = run("baseline", "write")
    assert (ran.code, ran.err) == (
        0,
        "fsdplint: a.py: invalid-syntax cannot be added to a baseline\n",
    )
    assert entries() == []
    assert against().code == 1


def test_the_settings_name_a_baseline_beside_them(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "fsdplint.toml").write_text("baseline = 'ci/known.json'\n")
    (here / "ci").mkdir()
    (here / "src").mkdir()
    (here / "src/a.py").write_text(IDLE)
    message = "No such file or directory; run `fsdplint baseline write` to create it"
    assert concise().err == f"fsdplint: {here}/ci/known.json: {message}\n"
    ran = run("baseline", "write")
    assert ran == Ran(0, "ci/known.json: 1 finding (1 added, 0 removed).\n", "")
    assert entries("ci/known.json") == [entry("../src/a.py")]
    assert concise() == Ran(0, KNOWN, "")
    monkeypatch.chdir(here / "src")
    assert concise() == Ran(0, KNOWN, "")
    for option in ("--no-baseline", "--isolated"):
        assert concise(option).out.splitlines()[0] == f"a.py:1:8: {LINE}"


def test_fixes_are_of_new_findings(here: Path) -> None:
    (here / "a.py").write_text(IDLE + OTHER + IDLE)
    save(entry())
    assert against("--fix").code == 0
    assert (here / "a.py").read_text() == IDLE + "y = 2\n" + FIXED
    assert concise("--fix").code == 0
    assert (here / "a.py").read_text() == FIXED + "y = 2\n" + FIXED


def test_json_counts_the_known(here: Path) -> None:
    (here / "a.py").write_text(IDLE)
    save(entry())
    document = json.loads(run("check", f"--baseline={NAME}", "--output-format=json").out)
    assert (document["known"], document["findings"]) == (1, [])


def test_unprintable_paths_and_code_come_back(here: Path) -> None:
    (here / "世\n\udcff.py").write_text(IDLE)
    assert run("baseline", "write").code == 0
    assert (here / NAME).read_text().count("\n") == 6
    assert entries()[0]["path"] == "世\n\udcff.py"
    assert against().code == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<<<<<<< ours\n{}", "not a baseline: Expecting value: line 1 column 1 (char 0)"),
        ("[]", "not a baseline: `version` is missing"),
        ('{"version": "1"}', "not a baseline: `version` is missing"),
        ('{"version": 2}', "baseline version 2 requires a newer fsdplint"),
        ('{"version": 1}', "not a baseline: `findings` is not a list"),
        (
            '{"version": 1, "findings": [{"path": "a", "rule": "b"}]}',
            "finding 1: expected strings `path`, `rule` and `code`, and a number `occurrence`",
        ),
    ],
)
@pytest.mark.parametrize(
    "command", [["check", "--baseline", NAME], ["baseline", "write"], ["baseline", "prune"]]
)
def test_what_is_no_baseline_is_one_line(
    here: Path, command: list[str], text: str, message: str
) -> None:
    (here / "a.py").write_text(IDLE)
    (here / NAME).write_text(text)
    assert run(*command) == Ran(2, "", f"fsdplint: {NAME}: {message}\n")
    assert (here / NAME).read_text() == text


def test_misuse_is_one_line(here: Path) -> None:
    (here / "a.py").write_text(FIXED)
    ran = run("check", "--baseline=a", "--no-baseline")
    assert ran == Ran(2, "", "fsdplint: --baseline cannot be combined with --no-baseline\n")
    ran = run("baseline", "prune")
    message = f"{NAME}: No such file or directory; run `fsdplint baseline write` to create it"
    assert ran == Ran(2, "", f"fsdplint: {message}\n")
    (here / "fsdplint.toml").write_text("baseline = 1\n")
    ran = run("check")
    message = "baseline: expected a file name, relative to the settings file"
    assert ran == Ran(2, "", f"fsdplint: {here}/fsdplint.toml: {message}\n")
