"""The table of public programs to migrate."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fsdplint.toml import loads

_TABLE = Path(__file__).with_name("programs.toml")


@dataclass(frozen=True, slots=True)
class Program:
    """A training script of a public repository, and how to run it on small inputs.

    Attributes:
        kind: the migration, as `fsdplint migrate` names it.
        script: its path in `directory`, the folder of the repository that it runs in.
        arguments: the script's own.
        steps: how many optimizer steps are compared, or "all".
        files: small inputs, by their path in `directory`; they replace what is published.
        environment: variables that the script reads.
    """

    kind: str
    repository: str
    commit: str
    script: str
    directory: str = "."
    arguments: str = ""
    steps: str = "3"
    files: Mapping[str, bytes] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The repository and the path of the script in it."""
        return f"{self.repository}/{(Path(self.directory) / self.script).as_posix()}"


def load() -> list[Program]:
    """Return all programs of the table."""
    table = loads(_TABLE.read_text("utf-8"))
    return [_program(row, table["commits"], table["files"]) for row in table["program"]]


def _program(
    row: Mapping[str, Any], commits: Mapping[str, str], files: Mapping[str, Mapping[str, Any]]
) -> Program:
    """Read a row; a file is a text, or a table with its bytes in base64."""
    given = {
        path: form.encode() if isinstance(form, str) else b64decode(form["base64"])
        for name in row.get("files", ())
        for path, form in files[name].items()
    }
    return Program(**{**row, "files": given, "commit": commits[row["repository"]]})
