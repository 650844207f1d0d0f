from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sarif_logs import BROKEN, outcome_of, run_of

from fsdplint import __version__
from fsdplint.files.decoding import SourceError
from fsdplint.finding import EarlyStop
from fsdplint.outcome import Account, Outcome, State
from fsdplint.pages import page
from fsdplint.report.sarif import sarif
from fsdplint.report.style import plain
from fsdplint.rules import RULES
from fsdplint.settings.rule_selection import OptIn
from fsdplint.urls import rule_url


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_without_findings_describes_the_rules_that_ran() -> None:
    run = run_of(outcome_of({"clean.py": "x = 1\n"}))
    assert run["results"] == []
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is True
    assert _told(run) == ["1 file is not part of a program that shards."]
    assert run["columnKind"] == "utf16CodeUnits"
    driver = run["tool"]["driver"]
    assert (driver["name"], driver["semanticVersion"]) == ("fsdplint", __version__)
    assert [(rule["id"], rule["name"]) for rule in driver["rules"]] == [
        (rule.code, rule.name.title().replace("-", ""))
        for rule in RULES
        if not OptIn().missing(rule)
    ]


def test_only_rules_that_ran_are_described() -> None:
    outcome = replace(outcome_of({"a.py": "x = 1\n"}), rules=frozenset({"direct-forward"}))
    assert [rule["id"] for rule in run_of(outcome)["tool"]["driver"]["rules"]] == ["FSD302"]


def test_a_rule_is_described_by_its_declaration_and_its_page() -> None:
    rules = run_of(outcome_of({"clean.py": "x = 1\n"}))["tool"]["driver"]["rules"]
    described = next(rule for rule in rules if rule["id"] == "FSD201")
    help_ = described.pop("help")
    assert help_["markdown"] == page("only-root-sharded")
    assert "```" not in help_["text"]
    assert "\n#" not in help_["text"]
    (summary,) = (rule.summary for rule in RULES if rule.code == "FSD201")
    summary = f"{summary[0].upper()}{summary[1:]}."
    assert described.pop("fullDescription")["text"].startswith(f"{summary} ")
    assert described == {
        "id": "FSD201",
        "name": "OnlyRootSharded",
        "shortDescription": {"text": summary},
        "helpUri": rule_url("only-root-sharded"),
        "defaultConfiguration": {"level": "warning"},
        "properties": {
            "fixes": "unsafe",
            "tags": ["fsdp", "only-root-sharded", "performance", "pytorch", "sharding"],
            "precision": "high",
            "problem.severity": "warning",
        },
    }


def test_every_description_is_short_enough_for_github() -> None:
    for rule in run_of(outcome_of({"clean.py": "x = 1\n"}))["tool"]["driver"]["rules"]:
        assert len(rule["shortDescription"]["text"]) <= 1024
        assert len(rule["fullDescription"]["text"]) <= 1024
        assert len(rule["properties"]["tags"]) <= 10
        assert rule["helpUri"].startswith("https://")


def test_a_file_that_does_not_parse_is_a_notification() -> None:
    run = run_of(outcome_of({"broken.py": "x = 1\ny = (\n"}))
    assert run["results"] == []
    (invocation,) = run["invocations"]
    assert invocation["executionSuccessful"] is True
    (notification,) = invocation["toolExecutionNotifications"]
    assert notification["level"] == "error"
    assert notification["associatedRule"] == {"id": "FSD001", "index": 0}
    assert notification["message"]["text"] == (
        "This file cannot be parsed and is not checked: '(' was never closed."
    )
    location = notification["locations"][0]["physicalLocation"]
    assert location["artifactLocation"] == {"uri": "broken.py", "uriBaseId": "%SRCROOT%"}
    assert location["region"]["startLine"] == 2


def test_what_was_not_looked_at_is_told(directory: Path) -> None:
    base = directory.as_posix()
    outcome = Outcome(
        (),
        {},
        (SourceError(f"{base}/a b.py", "is no text"), SourceError("/elsewhere.py", "is not there")),
        base,
        partly=(EarlyStop(f"{base}/long.py", "main", "more than 200 paths"),),
        accounts=(
            Account(f"{base}/a b.py", State.FAILED, "is no text"),
            Account(f"{base}/far.py", State.IRRELEVANT, "not part of a program that shards"),
            Account(f"{base}/train.py", State.CHECKED),
            Account(f"{base}/near.py", State.IRRELEVANT, "not part of a program that shards"),
            Account(f"{base}/pipe.py", State.SKIPPED, "a named pipe, not a regular file"),
        ),
    )
    (invocation,) = run_of(outcome)["invocations"]
    told = invocation["toolExecutionNotifications"]
    assert [(n["level"], n["message"]["text"], _uris(n)) for n in told] == [
        ("error", "a b.py: is no text", ["a%20b.py"]),
        ("error", "/elsewhere.py: is not there", []),
        (
            "warning",
            "analysis of `long.py:main` stopped early (more than 200 paths): findings may be "
            "missing.",
            ["long.py"],
        ),
        ("note", "pipe.py: skipped: a named pipe, not a regular file.", ["pipe.py"]),
        ("note", "2 files are not part of a program that shards.", ["far.py", "near.py"]),
    ]
    assert invocation["executionSuccessful"] is True


def test_a_run_that_looked_at_nothing_has_not_succeeded() -> None:
    outcome = Outcome((), {}, (SourceError("/missing", "no such file or folder"),), "/work")
    assert run_of(outcome)["invocations"][0]["executionSuccessful"] is False


def test_the_same_findings_give_the_same_bytes() -> None:
    outcome = outcome_of({"train.py": BROKEN})
    text = sarif(outcome, plain)
    assert text == sarif(outcome_of({"train.py": BROKEN}), plain)
    assert text.startswith('{"$schema":')
    assert text.isascii()


def test_uris_are_relative_to_the_repository(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory / ".git").mkdir()
    (directory / "sub dir#").mkdir()
    monkeypatch.chdir(directory / "sub dir#")
    run = run_of(outcome_of({"träin.py": BROKEN}))
    assert {uri for result in run["results"] for uri in _uris(result)} == {
        "sub%20dir%23/tr%C3%A4in.py"
    }


def test_a_name_that_is_not_utf8_has_its_bytes_in_the_uri(directory: Path) -> None:
    path = os.fsdecode(os.fsencode(directory) + b"/\xff.py")
    outcome = Outcome((), {}, (SourceError(path, "is no text"),), directory.as_posix())
    text = sarif(outcome, plain)
    (notification,) = json.loads(text)["runs"][0]["invocations"][0]["toolExecutionNotifications"]
    assert _uris(notification) == ["%FF.py"]
    assert notification["message"]["text"] == r"\udcff.py: is no text"


def test_uris_never_leave_the_root(directory: Path) -> None:
    outcome = outcome_of({"one/train.py": BROKEN})
    run = run_of(replace(outcome, base=f"{directory}/two", root=f"{directory}/two"))
    assert {uri for result in run["results"] for uri in _uris(result)} == {"one/train.py"}


def test_suppressed_findings_are_left_out() -> None:
    silenced = BROKEN.replace("ones(8))", "ones(8))  # fsdplint: ignore[direct-forward]")
    run = run_of(outcome_of({"train.py": silenced}))
    assert "FSD302" not in {result["ruleId"] for result in run["results"]}
    assert "suppressions" not in json.dumps(run["results"])


def test_sarif_om_is_imported_only_when_asked_for() -> None:
    code = "import sys, fsdplint.cli.main, fsdplint.report; sys.exit('sarif_om' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def _uris(located: dict[str, Any]) -> list[str]:
    return [
        location["physicalLocation"]["artifactLocation"]["uri"]
        for location in located.get("locations", ())
    ]


def _told(run: dict[str, Any]) -> list[str]:
    return [n["message"]["text"] for n in run["invocations"][0]["toolExecutionNotifications"]]
