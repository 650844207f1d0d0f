"""Findings as SARIF 2.1.0, as GitHub code scanning and other readers of the format expect them.

Suppressed findings are left out, since GitHub shows them as open, and a file that does not parse
is a notification. The same outcome gives the same bytes.

Source: OASIS, Static Analysis Results Interchange Format 2.1.0.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import PurePath
from typing import Any

import sarif_om as om

from fsdplint import __version__
from fsdplint.fingerprint import fingerprints
from fsdplint.outcome import Outcome
from fsdplint.report.sarif.artifacts import ROOT, Artifacts
from fsdplint.report.sarif.notifications import notifications
from fsdplint.report.sarif.results import result_of
from fsdplint.report.sarif.rules import descriptor
from fsdplint.report.style import Style
from fsdplint.rules import RULES
from fsdplint.rules.invalid_syntax import RULE as INVALID_SYNTAX

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_LINE_ENDS = ["\r\n", "\n", "\r"]
# Members that are written even if their value is the schema's default: readers that ignore the
# schema would take the level from the rule.
_EXPLICIT = frozenset({"level", "kind"})


def sarif(outcome: Outcome, _: Style) -> str:
    """Return the log of ``outcome``: the tool with its rules, the results, and the failures."""
    run_rules = outcome.rules | {finding.rule for finding in outcome.findings}
    rules = [rule for rule in RULES if rule.name in run_rules]
    indexes = {rule.code: index for index, rule in enumerate(rules)}
    artifacts = Artifacts(outcome.sources, _root(outcome))
    known = fingerprints(outcome, artifacts.root)
    invocation = om.Invocation(
        execution_successful=outcome.checked > 0 or not outcome.failures,
        tool_execution_notifications=list(notifications(outcome, indexes, artifacts)) or None,
    )
    return document(
        [descriptor(rule) for rule in rules],
        invocation,
        [
            result_of(finding, indexes[finding.code], known[finding], artifacts)
            for finding in outcome.findings
            if finding.rule != INVALID_SYNTAX.name
        ],
    )


def document(
    rules: list[om.ReportingDescriptor], invocation: om.Invocation, results: list[om.Result]
) -> str:
    """Return the log of one run of fsdplint, as JSON."""
    run = om.Run(
        tool=om.Tool(
            driver=om.ToolComponent(
                name="fsdplint",
                version=__version__,
                semantic_version=__version__,
                information_uri="https://pypi.org/project/fsdplint/",
                rules=rules,
            )
        ),
        invocations=[invocation],
        results=results,
        column_kind="utf16CodeUnits",
        newline_sequences=_LINE_ENDS,
        original_uri_base_ids={
            ROOT: om.ArtifactLocation(description=om.Message(text="The root of the sources."))
        },
    )
    return _serialized(om.SarifLog(version="2.1.0", schema_uri=_SCHEMA, runs=[run]))


def _root(outcome: Outcome) -> str:
    """Return the repository's directory, or the nearest one above all files that findings name."""
    named = frozenset[str]().union(*(finding.paths for finding in outcome.findings))
    outside = [path for path in named if not PurePath(path).is_relative_to(outcome.root)]
    return PurePath(os.path.commonpath([outcome.root, *outside])).as_posix()


def _serialized(log: object) -> str:
    """Return the JSON document of ``log``, ending with a line end.

    sarif-om's own serializer leaves out every value that equals a default, levels among them.
    """
    members = _members(log)
    # What identifies the format comes first.
    ordered = {name: members.pop(name) for name in ("$schema", "version")} | members
    return json.dumps(ordered, separators=(",", ":"), default=_members) + "\n"


def _members(value: Any) -> dict[str, Any]:
    """Return the members of an object of sarif-om that differ from their defaults."""
    members = {}
    type_: Any = type(value)
    for attribute, name, default in _fields(type_):
        member = getattr(value, attribute)
        if member is not None and member != default:
            members[name] = member
    return members


@cache
def _fields(type_: Any) -> list[tuple[str, str, object]]:
    """Return the attributes of a class, their names in the schema, and the values to leave out."""
    fields = []
    for field in type_.__attrs_attrs__:
        name = field.metadata["schema_property_name"]
        factory = getattr(field.default, "factory", None)
        default = field.default if factory is None else factory()
        fields.append((field.name, name, None if name in _EXPLICIT else default))
    return fields
