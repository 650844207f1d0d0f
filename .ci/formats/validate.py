"""Has readers of each format read reports of fsdplint, and reports that are broken on purpose.

usage: validate.py FSDPLINT WORK, where WORK holds junit-10.xsd
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import github
import gitlab
import json_lines
import junit
import rdjson
from cases import CASES, Files, write
from finds import FAILED, Break, Found, Refused

# A line that is not what its encoding says, and that a rule would look at.
UNREADABLE = b"from torch.distributed.fsdp import fully_shard\nx = '\xe9'\n"
MORE: dict[str, Files] = {"unreadable": {"latin.py": UNREADABLE, "clean.py": b"x = 1\n"}}
# What has every kind of entry.
BREAKABLE = "across files"


class Reader(NamedTuple):
    """Of one format: what is read from a text about a directory, and how to break the text."""

    read: Callable[[str, Path], list[Found]]
    canaries: Mapping[str, Break]
    lines: bool
    failures: bool


class Reports:
    """What fsdplint says of ``files``, in every format."""

    def __init__(self, fsdplint: str, directory: Path, files: Files) -> None:
        self.directory = directory / "files"
        self.written = directory
        write(self.directory, files)
        formats = [f"--output-format={name}={directory / name}" for name in (*READERS, "sarif")]
        command = [fsdplint, "check", ".", "--isolated", "--exit-zero", *formats]
        ended = subprocess.run(
            command, cwd=self.directory, check=False, stderr=subprocess.PIPE, text=True
        )
        assert ended.returncode == (2 if ended.stderr else 0), ended

    def text(self, format_: str) -> str:
        return (self.written / format_).read_bytes().decode("utf-8")

    def expected(self) -> list[Found]:
        """What the SARIF log has, which its own readers check."""
        (run,) = json.loads(self.text("sarif"))["runs"]
        found = [_of_sarif(each, each["ruleId"]) for each in run["results"]]
        for each in run["invocations"][0].get("toolExecutionNotifications", ()):
            if each["level"] == "note":  # a file without sharding, which the others leave out
                continue
            rule = each.get("associatedRule")
            found.append(_of_sarif(each, rule["id"] if rule else FAILED))
        return found


def _of_sarif(told: dict[str, Any], code: str) -> Found:
    place = told["locations"][0]["physicalLocation"]
    path = unquote(place["artifactLocation"]["uri"])
    return Found(code, path, place.get("region", {}).get("startLine"))


READERS = {
    "github": Reader(github.read, github.CANARIES, lines=True, failures=True),
    "gitlab": Reader(gitlab.read, gitlab.CANARIES, lines=True, failures=True),
    "json-lines": Reader(json_lines.read, json_lines.CANARIES, lines=False, failures=False),
    "rdjson": Reader(rdjson.read, rdjson.CANARIES, lines=True, failures=True),
}


def validate(fsdplint: str, work: Path) -> None:
    """Read every case.

    Raises:
        AssertionError: a report is not what it should be, or a reader takes what is broken.
    """
    schema = junit.Reader(work / "junit-10.xsd")
    READERS["junit"] = Reader(schema.read, junit.CANARIES, lines=False, failures=True)
    for name, files in {**{name: files for name, (files, _) in CASES.items()}, **MORE}.items():
        reports = Reports(fsdplint, work / name, files)
        _expect_read(name, reports)
        _expect_suggestions_are_fixes(fsdplint, work / f"{name} fixed", reports, files)
        if name == BREAKABLE:
            _expect_canaries_refused(reports)


def _expect_read(name: str, reports: Reports) -> None:
    expected = reports.expected()
    for format_, reader in READERS.items():
        of_format = [
            Found(code, path, line if reader.lines else None)
            for code, path, line in expected
            if reader.failures or code != FAILED
        ]
        read = reader.read(reports.text(format_), reports.directory)
        assert sorted(read, key=str) == sorted(of_format, key=str), (name, format_, read)
    print(f"{name}: {len(expected)} read from {', '.join(READERS)}", flush=True)


def _expect_suggestions_are_fixes(
    fsdplint: str, directory: Path, reports: Reports, files: Files
) -> None:
    """The suggestions for reviewdog, all taken, make the files that --fix does."""
    write(directory, files)
    command = [fsdplint, "check", ".", "--isolated", "--fix", "--unsafe-fixes"]
    subprocess.run(command, cwd=directory, check=False, capture_output=True)
    fixed = {path: (directory / path).read_bytes() for path in files}
    taken = dict(files)
    suggestions = rdjson.suggestions(reports.text("rdjson"), reports.directory)
    for path, start, end, text in sorted(suggestions, reverse=True):
        taken[path] = taken[path][:start] + text + taken[path][end:]
    assert taken == fixed, (directory, suggestions)
    print(f"  {len(suggestions)} suggestions make what --fix does", flush=True)


def _expect_canaries_refused(reports: Reports) -> None:
    for format_, reader in READERS.items():
        intact = reports.text(format_)
        for name, break_ in reader.canaries.items():
            broken = break_(intact)
            assert broken != intact, (format_, name)
            try:
                read = reader.read(broken, reports.directory)
            except Refused as refused:
                reason = str(refused).strip().splitlines()[0]
                print(f"  {format_}: {name}: refused, {reason[:70]}", flush=True)
            else:
                raise AssertionError((format_, name, read))


if __name__ == "__main__":
    validate(sys.argv[1], Path(sys.argv[2]))
