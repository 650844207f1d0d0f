"""Has readers of SARIF read logs of fsdplint, and logs that are broken on purpose.

usage: validate.py FSDPLINT WORK, where WORK holds node_modules and a venv
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
from cases import CASES, REDUNDANT, Files, write

CONFIGURATION = Path(__file__).with_name("multitool.xml")
# The Multitool leaves out larger files unless it is told, and calls that success.
MAX_KILOBYTES = "1000000"
MANY = {"many.py": REDUNDANT.encode() * 25_001}


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

    def complaints(self, log: Path) -> list[str]:
        """What the schema and the Multitool find wrong, the rules' names or the schema's paths."""
        document = json.loads(log.read_text("utf-8"))
        wrong = [f"schema {error.json_path}" for error in self.schema.iter_errors(document)]
        report = log.with_suffix(".report")
        report.unlink(missing_ok=True)
        command = [self.multitool, "validate", log, "--output", report]
        command += ["--rule-kind", "Sarif;Ghas", "--config", CONFIGURATION]
        command += ["--max-file-size-in-kb", MAX_KILOBYTES]
        environment = {**os.environ, "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT": "1"}
        # Its exit code says nothing.
        subprocess.run(command, env=environment, check=False, stdout=subprocess.DEVNULL)
        (run,) = json.loads(report.read_text("utf-8-sig"))["runs"]
        return [*wrong, *(result["ruleId"] for result in run["results"]), *_trouble(run)]

    def tool(self, *arguments: str | Path) -> str:
        """What sarif-tools prints."""
        command = [self.work / "venv" / "bin" / "sarif", *arguments]
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
CANARIES: dict[str, tuple[Break, str]] = {
    "a level that there is not": (
        lambda run: run["results"][0].update(level="fatal"),
        "schema $.runs[0].results[0].level",
    ),
    "a change without replacements": (
        lambda run: run["results"][0]["fixes"][0]["artifactChanges"][0].pop("replacements"),
        "schema $.runs[0].results[0].fixes[0].artifactChanges[0]",
    ),
    "an end before its start": (
        lambda run: _region(run).update(endLine=1, startLine=2),
        "SARIF1007",
    ),
    "a rule's index that leads astray": (
        lambda run: run["results"][0].update(ruleIndex=99),
        "SARIF1009",
    ),
    "no tool's address": (lambda run: run["tool"]["driver"].pop("informationUri"), "SARIF2005"),
    "a result that is nowhere": (lambda run: run["results"][0].pop("locations"), "GH1001"),
    "a region without a line": (lambda run: _region(run).pop("startLine"), "GH1003"),
    "an absolute path": (
        lambda run: run["results"][0]["locations"][0]["physicalLocation"].update(
            artifactLocation={"uri": "file:///a.py"}
        ),
        "GH1006",
    ),
    "a message by reference": (
        lambda run: run["results"][0].update(message={"id": "default"}),
        "GH1007",
    ),
}


def validate(readers: Readers) -> None:
    """Read every case.

    Raises:
        AssertionError: a log is not what it should be, or a reader takes what is broken.
    """
    for name, (files, rules) in CASES.items():
        _expect_valid(readers, name, files, rules)
    _expect_many_cut(readers)
    _expect_canaries_found(readers)
    _expect_read_by_sarif_tools(readers)


def _expect_valid(readers: Readers, name: str, files: Files, rules: list[str]) -> None:
    log = readers.log(name, files)
    (run,) = json.loads(log.read_text("utf-8"))["runs"]
    assert sorted(result["ruleId"] for result in run["results"]) == sorted(rules), name
    complaints = readers.complaints(log)
    assert not complaints, (name, complaints)
    print(f"{name}: {len(rules)} results, valid", flush=True)


def _expect_many_cut(readers: Readers) -> None:
    log = readers.log("many", MANY)
    (run,) = json.loads(log.read_text("utf-8"))["runs"]
    assert len(run["results"]) == 25_000
    told = run["invocations"][0]["toolExecutionNotifications"]
    (notification,) = [each for each in told if each["level"] != "note"]
    assert "25,000 most severe of 25,001" in notification["message"]["text"]
    # All results are alike, and the Multitool takes minutes for so many.
    cut = json.loads(log.read_text("utf-8"))
    del cut["runs"][0]["results"][100:]
    log.write_text(json.dumps(cut), "utf-8")
    assert readers.complaints(log) == []
    print("25,001 results: cut to 25,000, valid", flush=True)


def _expect_canaries_found(readers: Readers) -> None:
    intact = json.loads((readers.work / "across files.sarif").read_text("utf-8"))
    for name, (break_, complaint) in CANARIES.items():
        broken = copy.deepcopy(intact)
        break_(broken["runs"][0])
        log = readers.work / "canary.sarif"
        log.write_text(json.dumps(broken), "utf-8")
        assert complaint in readers.complaints(log), (name, readers.complaints(log))
        print(f"{name}: found, {complaint}", flush=True)


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
