"""Code Quality reports by what GitLab's documentation asks of them.

Source: https://docs.gitlab.com/ci/testing/code_quality/#code-quality-report-format. GitLab's parser
shows nothing from the first entry on that it does not take.
"""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
from finds import FAILED, Break, Found, Refused, expect_line

LINE = {"type": "integer", "minimum": 1}
SCHEMA = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["description", "check_name", "fingerprint", "severity", "location"],
        "properties": {
            "description": {"type": "string", "minLength": 1},
            "check_name": {"type": "string", "minLength": 1},
            "fingerprint": {"type": "string", "minLength": 1},
            "severity": {"enum": ["info", "minor", "major", "critical", "blocker"]},
            "location": {
                "type": "object",
                "required": ["path", "lines"],
                "properties": {
                    "path": {"type": "string", "pattern": r"^(?!/|\./)"},
                    "lines": {
                        "type": "object",
                        "required": ["begin"],
                        "properties": {"begin": LINE, "end": LINE},
                    },
                },
            },
        },
    },
}
CANARIES: dict[str, Break] = {
    "no fingerprint": lambda text: text.replace('"fingerprint"', '"print"', 1),
    "a severity that there is not": lambda text: text.replace('"critical"', '"error"', 1),
    "a line in quotes": lambda text: text.replace('"begin": ', '"begin": "1", "was": ', 1),
    "a path from the current folder": lambda text: text.replace('"path": "', '"path": "./', 1),
    "entries of one fingerprint": lambda text: json.dumps(json.loads(text)[:1] * 2),
    "an object around the list": lambda text: f'{{"issues": {text}}}',
}


def read(text: str, directory: Path) -> list[Found]:
    """The entries that GitLab shows."""
    issues = json.loads(text)
    try:
        jsonschema.validate(issues, SCHEMA)
    except jsonschema.ValidationError as error:
        raise Refused(f"{error.json_path}: {error.message}") from error
    if len({issue["fingerprint"] for issue in issues}) != len(issues):
        raise Refused("two entries have one fingerprint, and GitLab shows one of them")
    return [_found(issue, directory) for issue in issues]


def _found(issue: dict[str, object], directory: Path) -> Found:
    location = issue["location"]
    assert isinstance(location, dict)
    first, last = location["lines"]["begin"], location["lines"]["end"]
    expect_line(directory, location["path"], first)
    expect_line(directory, location["path"], last)
    if issue["check_name"] == FAILED.replace(" ", "-"):
        return Found(FAILED, location["path"], None)
    return Found(str(issue["description"]).partition(" ")[0], location["path"], first)
