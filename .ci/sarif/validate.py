"""Has readers of SARIF read logs of fsdplint, and logs that are broken on purpose.

usage: validate.py FSDPLINT WORK, where WORK holds node_modules
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
from cases import CASES, Files, write

CONFIGURATION = Path(__file__).with_name("multitool.xml")


class Readers:
    """The command to test, and the programs that read what it writes."""

    def __init__(self, fsdplint: str, work: Path) -> None:
        self.fsdplint = fsdplint
        self.work = work
        package = work / "node_modules" / "@microsoft" / "sarif-multitool-linux"
        self.multitool = package / "Sarif.Multitool"
        schema = json.loads((package / "sarif-2.1.0.json").read_text("utf-8-sig"))
        checker = jsonschema.FormatChecker()
        self.schema = jsonschema.Draft202012Validator(schema, format_checker=checker)

    def log(self, name: str, files: Files) -> Path:
        """The log of ``files``."""
        directory = self.work / "cases" / name
        write(directory, files)
        log = self.work / f"{name}.sarif"
        command = [self.fsdplint, "check", ".", "--isolated", "--output-format", "sarif"]
        subprocess.run([*command, "--output-file", log, "--exit-zero"], cwd=directory, check=True)
        return log

    def misfits(self, document: object) -> list[str]:
        """Where a log is not what the schema says."""
        return [error.json_path for error in self.schema.iter_errors(document)]

    def complaints(self, log: Path) -> list[str]:
        """The rules of the Multitool that a log breaks, and why it did not look at it."""
        report = log.with_suffix(".report")
        report.unlink(missing_ok=True)
        command = [self.multitool, "validate", log, "--output", report]
        command += ["--rule-kind", "Sarif;Ghas", "--config", CONFIGURATION]
        environment = {**os.environ, "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT": "1"}
        # Its exit code says nothing.
        subprocess.run(command, env=environment, check=False, stdout=subprocess.DEVNULL)
        (run,) = json.loads(report.read_text("utf-8-sig"))["runs"]
        return [*(result["ruleId"] for result in run["results"]), *_trouble(run)]

    def tool(self, *arguments: str | Path) -> str:
        """What sarif-tools prints."""
        command = [Path(sys.executable).with_name("sarif"), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _trouble(run: dict[str, Any]) -> list[str]:
    """What kept the Multitool from looking at the log."""
    kinds = ("toolExecutionNotifications", "toolConfigurationNotifications")
    return [
        notification["message"]["text"]
        for invocation in run["invocations"]
        for kind in kinds
        for notification in invocation.get(kind, ())
    ]


Break = Callable[[dict[str, Any]], object]


def _region(run: dict[str, Any]) -> dict[str, Any]:
    found = run["results"][0]["locations"][0]["physicalLocation"]["region"]
    assert isinstance(found, dict)
    return found


# Each break, and what has to be said of it.
AGAINST_THE_SCHEMA: dict[str, Break] = {
    "$.runs[0].results[0].level": lambda run: run["results"][0].update(level="fatal"),
    "$.runs[0].results[0].fixes[0].artifactChanges[0]": (
        lambda run: run["results"][0]["fixes"][0]["artifactChanges"][0].pop("replacements")
    ),
}
AGAINST_A_RULE: dict[str, Break] = {
    "SARIF1007": lambda run: _region(run).update(endLine=1, startLine=2),
    "SARIF1009": lambda run: run["results"][0].update(ruleIndex=99),
    "SARIF2005": lambda run: run["tool"]["driver"].pop("informationUri"),
    "GH1001": lambda run: run["results"][0].pop("locations"),
    "GH1003": lambda run: _region(run).pop("startLine"),
    "GH1006": lambda run: run["results"][0]["locations"][0]["physicalLocation"].update(
        artifactLocation={"uri": "file:///a.py"}
    ),
    "GH1007": lambda run: run["results"][0].update(message={"id": "default"}),
}


def validate(readers: Readers) -> None:
    """Read every case.

    Raises:
        AssertionError: a log is not what it should be, or a reader takes what is broken.
    """
    logs = [_expect_valid(readers, name, files, rules) for name, (files, rules) in CASES.items()]
    # Each as a run of one log: the Multitool takes seconds to start.
    whole = readers.work / "whole.sarif"
    whole.write_text(json.dumps({**logs[0], "runs": [log["runs"][0] for log in logs]}), "utf-8")
    complaints = readers.complaints(whole)
    assert not complaints, complaints
    print("the Multitool: valid", flush=True)
    _expect_broken_found(readers)
    _expect_read_by_sarif_tools(readers)


def _expect_valid(readers: Readers, name: str, files: Files, rules: list[str]) -> dict[str, Any]:
    log = json.loads(readers.log(name, files).read_text("utf-8"))
    assert isinstance(log, dict)
    (run,) = log["runs"]
    assert sorted(result["ruleId"] for result in run["results"]) == sorted(rules), name
    misfits = readers.misfits(log)
    assert not misfits, (name, misfits)
    print(f"{name}: {len(rules)} results, as the schema says", flush=True)
    return log


def _expect_broken_found(readers: Readers) -> None:
    """What is broken on purpose is found: each rule is on, and breaks in a run of its own."""
    whole = json.loads((readers.work / "across files.sarif").read_text("utf-8"))
    for path, break_ in AGAINST_THE_SCHEMA.items():
        assert readers.misfits(_broken(whole, break_)) == [path]
    runs = [_broken(whole, break_)["runs"][0] for break_ in AGAINST_A_RULE.values()]
    log = readers.work / "broken.sarif"
    log.write_text(json.dumps({**whole, "runs": runs}), "utf-8")
    complaints = readers.complaints(log)
    assert AGAINST_A_RULE.keys() <= set(complaints), complaints
    print("broken on purpose: found", flush=True)


def _broken(log: dict[str, Any], break_: Break) -> dict[str, Any]:
    broken = copy.deepcopy(log)
    break_(broken["runs"][0])
    return broken


def _expect_read_by_sarif_tools(readers: Readers) -> None:
    examples, fewer = (readers.work / f"{name}.sarif" for name in ("examples", "clean"))
    summary = readers.tool("summary", examples)
    assert ("error: 5" in summary, "warning: 1" in summary, "note: 0" in summary) == (True,) * 3
    assert "all levels: +5 +0" in readers.tool("diff", fewer, examples), "diff"
    assert "all levels: +0 +0" in readers.tool("diff", examples, examples), "diff"
    page, climate = readers.work / "page.html", readers.work / "climate.json"
    readers.tool("html", "--output", page, examples)
    assert "FSD301" in page.read_text("utf-8")
    readers.tool("codeclimate", "--output", climate, examples)
    issues = json.loads(climate.read_text("utf-8"))
    assert {issue["location"]["path"] for issue in issues} == {
        result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        for result in json.loads(examples.read_text("utf-8"))["runs"][0]["results"]
    }
    print("sarif-tools: summary, diff, html and codeclimate", flush=True)


if __name__ == "__main__":
    validate(Readers(sys.argv[1], Path(sys.argv[2])))
