"""The keys of the settings: the value of each where no file sets it, and what it is for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Key:
    """A key of `[tool.fsdplint]`.

    Attributes:
        default: its value where no file sets it; None for one that is then found out.
        example: a value, as TOML, for the reference.
        help: what it is for, in Markdown.
    """

    default: object
    example: str
    help: str


KEYS: Mapping[str, Key] = {
    "select": Key(
        ["ALL"],
        '["FSD3", "sharded-state-saved"]',
        "The rules to run: names, codes, prefixes of codes, or `ALL`.",
    ),
    "extend-select": Key([], '["FSD404"]', "Rules to run besides those of `select`."),
    "ignore": Key([], '["only-root-sharded"]', "Rules not to run."),
    "per-file-ignores": Key(
        {},
        '{"experiments/*" = ["FSD501"]}',
        "Rules not to run on some files: patterns as in `.gitignore`, each with a list of rules.",
    ),
    "exclude": Key(
        [],
        '["/third_party"]',
        "Files and folders to leave out: patterns as in `.gitignore`, relative to the settings "
        "file. A path given on the command line is checked anyway, unless `--force-exclude`.",
    ),
    "target-torch": Key(
        None,
        '">=2.6,<2.14"',
        "The releases of PyTorch that the code runs on. Without it, those that the project's "
        "requirements admit.",
    ),
    "output-format": Key(
        "full", '"concise"', "The format of the report on standard output, as `--output-format`."
    ),
    "baseline": Key(
        None,
        '"fsdplint-baseline.json"',
        "Report only findings that are not in this baseline, a path relative to the settings file.",
    ),
    "preview": Key(
        False, "true", "Let `ALL` and prefixes select preview rules, too, as `--preview`."
    ),
    "strict": Key(
        False, "true", "Exit with 2 if the analysis of a program stops early, as `--strict`."
    ),
}
