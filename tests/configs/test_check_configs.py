"""Config files are found by what is in them, and checked, fixed and suppressed as code is."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from fsdplint import start
from fsdplint.check import check
from fsdplint.cli import main as cli
from fsdplint.outcome import State
from fsdplint.settings.config import defaults
from fsdplint.settings.rule_selection import EVERYTHING

IGNORED = """\
distributed_type: FSDP
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_limit_all_gathers: true
"""
CLEAN = IGNORED.replace("  fsdp_limit_all_gathers: true\n", "")


def found(*paths: Path) -> list[tuple[str, str]]:
    outcome = check(paths, defaults())
    assert not outcome.failures
    return [(Path(f.span.path).name, f.rule) for f in outcome.findings]


def test_files_are_known_by_what_is_in_them(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/any.yml").write_text(IGNORED)
    settings = {"fsdp_auto_wrap_policy": "SIZE_BASED_WRAP", "fsdp_limit_all_gathers": True}
    text = json.dumps({"distributed_type": "FSDP", "fsdp_config": settings})
    (tmp_path / "a.json").write_text(text)
    # Of others: no `fsdp_config`, none of accelerate, none with settings, and no config by name.
    (tmp_path / "b.yaml").write_text("distributed_type: FSDP\nx: {fsdp_limit_all_gathers: 1}\n")
    (tmp_path / "c.yaml").write_text(IGNORED.replace("distributed_type", "fsdp"))
    (tmp_path / "d.yaml").write_text("distributed_type: FSDP\nfsdp_config: {}\n")
    (tmp_path / "e.txt").write_text(IGNORED)
    assert found(tmp_path) == [
        ("a.json", "unknown-fsdp-setting"),
        ("any.yml", "unknown-fsdp-setting"),
    ]


def test_each_file_is_accounted_for(tmp_path: Path) -> None:
    for name, text in {
        "a.yaml": CLEAN,
        "b.yaml": "x: 1\n",
        "c.yaml": "distributed_type: FSDP\nfsdp_config: {% if x %}\n",
    }.items():
        (tmp_path / name).write_text(text)

    def accounts(*paths: Path) -> list[tuple[str, str, str]]:
        outcome = check(paths, defaults())
        assert not outcome.failures and not outcome.findings
        return [(Path(a.path).name, a.state.value, a.reason) for a in outcome.accounts]

    checked, template = ("a.yaml", "checked", ""), ("c.yaml", "skipped", "a template")
    assert accounts(tmp_path) == [checked, template]
    other = ("b.yaml", "irrelevant", "no settings of FSDP and no launch line that fsdplint knows")
    assert accounts(*sorted(tmp_path.iterdir())) == [checked, other, template]


def test_a_folder_without_any_is_said_to_have_none(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("x: 1\n")
    (failure,) = check([tmp_path], defaults()).failures
    assert failure.reason == "contains no Python file to check"


@pytest.mark.parametrize(
    ("data", "line", "said"),
    [
        (b"distributed_type: FSDP\nfsdp_config: [\n", 3, "expected the node content, but found"),
        (b"distributed_type: FSDP\nfsdp_config:\n\ta: 1\n", 3, "found character '\\t' that"),
        (b'{"distributed_type": "FSDP",\n"fsdp_config": {,}}', 2, ""),
    ],
)
def test_a_broken_file_is_reported(tmp_path: Path, data: bytes, line: int, said: str) -> None:
    file = tmp_path / ("a.json" if data.startswith(b"{") else "a.yaml")
    file.write_bytes(data)
    (finding,) = check([tmp_path], defaults()).findings
    assert finding.rule == "invalid-syntax" and said in finding.message
    assert data[: finding.span.start].count(b"\n") + 1 == line


@pytest.mark.parametrize(
    "data",
    [
        b"fsdp_config: \xff\n",
        b"fsdp_config: \0\n",
        b"distributed_type: FSDP\nfsdp_config: {a: 1}\n" + b"#" * 2_000_000,
        "distributed_type: FSDP\nfsdp_config: {a: 1}\n".encode("utf-16"),
        b"distributed_type: FSDP\nfsdp_config: {a: ${oc.env:A}, b: [\n",
        b"distributed_type: FSDP\nfsdp_config: {a: 1}\n---\nx: 1\n",
        b"distributed_type: DEEPSPEED\ndeepspeed_config: [\n",
    ],
)
def test_what_is_no_text_and_templates_are_left_alone(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.yaml").write_bytes(data)
    (tmp_path / "a.py").write_text("")
    assert found(tmp_path) == []


def test_a_named_file_that_cannot_be_read_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"fsdp_config: \xff\n")
    (tmp_path / "b.yaml").write_bytes(b"#" * 2_000_000)
    outcome = check([tmp_path / "a.yaml", tmp_path / "b.yaml"], defaults())
    assert [(Path(f.path).name, f.reason) for f in outcome.failures] == [
        ("a.yaml", "line 1 is not utf-8 (byte 0xff): invalid start byte"),
        ("b.yaml", "larger than 1 MB"),
    ]


def test_files_of_a_folder_that_cannot_be_read_are_said_to_be_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"fsdp_config: \xff\n")
    (tmp_path / "b.yaml").write_bytes(b"fsdp_config:\n" + b"#" * 2_000_000)
    (tmp_path / "c.yaml").write_bytes(b"other: \xff\n")
    (tmp_path / "d.yaml").write_bytes(b"#" * 2_000_000)
    (tmp_path / "e.json").write_bytes(b'{"torchrun": "\xff"}')
    (tmp_path / "f.sh").write_bytes(b"torchrun \xff\n")
    (tmp_path / "g.py").write_text("")
    outcome = check([tmp_path], defaults())
    assert outcome.failures == ()
    assert [(Path(a.path).name, a.reason) for a in outcome.ended(State.SKIPPED)] == [
        ("a.yaml", "line 1 is not utf-8 (byte 0xff): invalid start byte"),
        ("b.yaml", "larger than 1 MB"),
        ("f.sh", "line 1 is not utf-8 (byte 0xff): invalid start byte"),
    ]


def test_the_releases_of_the_project_count(tmp_path: Path) -> None:
    text = CLEAN + "  fsdp_backward_prefetch_policy: BACKWARD_PRE\n"
    (tmp_path / "a.yaml").write_text(text)
    requirements = tmp_path / "requirements.txt"
    assert found(tmp_path) == [("a.yaml", "unknown-fsdp-setting")]
    for line, rules in {
        "accelerate==0.33.0": [],
        "accelerate>=0.33": [],
        "accelerate>=1.0": [("a.yaml", "unknown-fsdp-setting")],
        "accelerate==99.0": [("a.yaml", "unknown-fsdp-setting")],
        "torch==2.6": [("a.yaml", "unknown-fsdp-setting")],
    }.items():
        requirements.write_text(f"{line}\n")
        assert found(tmp_path) == rules, line


def test_comments_suppress(tmp_path: Path) -> None:
    comment = "# fsdplint: ignore[unknown-fsdp-setting] -- for others"
    for text in (
        IGNORED.rstrip() + f"  {comment}\n",
        IGNORED.replace("  fsdp_limit", f"  {comment}\n  fsdp_limit"),
        IGNORED.rstrip() + "  # noqa: FSD901\n",
        "# fsdplint: ignore-file[FSD901] -- ours\n" + IGNORED,
    ):
        (tmp_path / "a.yaml").write_text(text)
        assert found(tmp_path) == []
    (tmp_path / "a.yaml").write_text(CLEAN + f"  # {comment}\n")
    assert found(tmp_path) == [("a.yaml", "unused-suppression")]


def test_the_command_fixes_and_suppresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> int:
        with pytest.raises(SystemExit) as ended:
            cli.main(["check", *arguments])
        assert isinstance(ended.value.code, int)
        return ended.value.code

    ours = tmp_path / "ours.yaml"
    ours.write_bytes(b"\xef\xbb\xbf" + IGNORED.replace("\n", "\r\n").encode())
    assert run("--fix") == 0
    assert ours.read_bytes() == b"\xef\xbb\xbf" + CLEAN.replace("\n", "\r\n").encode()

    ours.write_text(IGNORED.replace("limit_all_gathers", "cpu_offload"))
    assert run("--fix") == 1
    assert run("--fix", "--unsafe-fixes") == 0
    assert ours.read_text() == IGNORED.replace("limit_all_gathers", "offload_params")

    ours.write_text(IGNORED)
    theirs = tmp_path / "theirs.json"
    settings = {"fsdp_auto_wrap_policy": "SIZE_BASED_WRAP", "fsdp_limit_all_gathers": True}
    text = json.dumps({"distributed_type": "FSDP", "fsdp_config": settings})
    theirs.write_text(text)
    capsys.readouterr()
    assert run("--add-ignore", "ours", "-q") == 1
    assert "ignore[unknown-fsdp-setting] -- ours\n" in ours.read_text()
    assert theirs.read_text() == text
    assert run("--add-ignore", "ours", str(theirs)) == 1
    said = "theirs.json: JSON has no comments; use per-file-ignores or a baseline\n"
    assert said in capsys.readouterr().err
    assert run("--show-files") == 0
    assert capsys.readouterr().out == f"{ours}\n{theirs}\n"


def test_a_run_is_repeated_when_a_config_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["fsdplint", "check"])
    file = tmp_path / "a.yaml"
    for text, code in ((IGNORED, 1), (IGNORED, 1), (CLEAN, 0), (IGNORED, 1)):
        file.write_text(text)
        with pytest.raises(SystemExit) as ended:
            start.main()
        assert ended.value.code == code
    (tmp_path / "b.yml").write_text(IGNORED)
    capsys.readouterr()
    with pytest.raises(SystemExit):
        start.main()
    assert "Found 2 findings in 2 files" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("lines", "rules"),
    [
        # What is read for nothing may be refused all the same.
        ("fsdp_version: 2; fsdp_backward_prefetch: false", ["invalid-fsdp-setting"]),
        # What is merged may be anything.
        ("<<: {fsdp_version: 1}; fsdp_version: 2; fsdp_sharding_strategy: NO_SHARD", []),
        ("<<: {fsdp_version: 1}; fsdp_sync_module_states: false", []),
        ("<<: {fsdp_version: 1}; fsdp_limit_all_gathers: true", ["unknown-fsdp-setting"]),
        # A name that is taken is not given again.
        ("fsdp_offload_params: true; fsdp_cpu_offload: true", ["unknown-fsdp-setting"]),
        ("fsdp_offload_params: true; fsdp_offload_params: true", []),
    ],
)
def test_findings_are_exactly_these(tmp_path: Path, lines: str, rules: list[str]) -> None:
    policy = "" if "<<" in lines else "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
    text = "".join(f"  {line}\n" for line in lines.split("; "))
    (tmp_path / "a.yaml").write_text(f"distributed_type: FSDP\nfsdp_config:\n{policy}{text}")
    outcome = check([tmp_path], defaults(EVERYTHING))
    found = [f for f in outcome.findings if f.rule != "fsdp1-config"]
    assert [f.rule for f in found] == rules
    assert all(f.fix is None or f.fix.title == "remove the setting" for f in found)
