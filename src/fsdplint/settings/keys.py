"""The keys of the settings: their defaults and their meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Key:
    """A key of `[tool.fsdplint]`.

    Attributes:
        default: its value if no file sets it; None if the value is then derived.
        example: a value, as TOML, for the reference.
        help: its meaning, in Markdown.
    """

    default: object
    example: str
    help: str


KEYS: Mapping[str, Key] = {
    "select": Key(
        ["ALL"],
        '["FSD3", "sharded-state-saved"]',
        "The rules to run: names, codes, code prefixes, or `ALL`.",
    ),
    "extend-select": Key([], '["FSD404"]', "Rules to run in addition to `select`."),
    "ignore": Key([], '["only-root-sharded"]', "Rules to disable."),
    "per-file-ignores": Key(
        {},
        '{"experiments/*" = ["FSD501"]}',
        "Rules to disable for some files: patterns as in `.gitignore`, each with a list of rules.",
    ),
    "exclude": Key(
        [],
        '["/third_party"]',
        "Files and folders to exclude: patterns as in `.gitignore`, relative to the settings file. "
        "Paths given on the command line are checked anyway, unless you pass `--force-exclude`.",
    ),
    "target-torch": Key(
        None,
        '">=2.6,<2.14"',
        "The PyTorch releases that the code runs on. The default is the range in the project's "
        "requirements.",
    ),
    "output-format": Key(
        "full", '"concise"', "The format of the report on standard output, like `--output-format`."
    ),
    "baseline": Key(
        None,
        '"fsdplint-baseline.json"',
        "Report only findings not in this baseline. The path is relative to the settings file.",
    ),
    "preview": Key(
        False, "true", "Include preview rules in `ALL` and in code prefixes, like `--preview`."
    ),
    "pedantic": Key(
        False,
        "true",
        "Include rules of severity note in `ALL` and in code prefixes, like `--pedantic`.",
    ),
    "fail-on": Key(
        "warning",
        '"error"',
        "Exit with 1 only if a finding is at least this severe: `error`, `warning` or `note`. "
        "Like `--fail-on`.",
    ),
    "strict": Key(
        False, "true", "Exit with 2 if the analysis of a program stopped early, like `--strict`."
    ),
}
