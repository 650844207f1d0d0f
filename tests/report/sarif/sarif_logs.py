"""Logs of files that a test writes, and a reader of them that knows nothing of fsdplint."""

from __future__ import annotations

import json
import re
from codecs import BOM_UTF8 as _MARK
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from fsdplint.check import check
from fsdplint.outcome import Outcome
from fsdplint.report.sarif import sarif
from fsdplint.report.style import plain
from fsdplint.settings.config import Settings

BROKEN = """\
import torch
from torch.distributed.fsdp import fully_shard

model = torch.nn.Sequential(torch.nn.Linear(8, 8))
optimizer = torch.optim.AdamW(model.parameters())
fully_shard(model)
model.forward(torch.ones(8))
"""


def write(directory: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def outcome_of(files: dict[str, str | bytes]) -> Outcome:
    """What is found in ``files``, written below the working directory."""
    write(Path.cwd(), files)
    return check(["."], Settings())


def run_of(outcome: Outcome) -> dict[str, Any]:
    """The only run of the log."""
    (run,) = json.loads(sarif(outcome, plain))["runs"]
    assert isinstance(run, dict)
    return run


@dataclass(frozen=True)
class Replacement:
    """Half-open offsets, in UTF-16 code units, of what ``text`` replaces in ``file``."""

    file: Path
    start: int
    end: int
    text: str


def apply_fixes(run: dict[str, Any], root: Path) -> int:
    """Make the changes of as many fixes as do not touch, the last one first; how many they are."""
    taken: list[Replacement] = []
    count = 0
    for result in reversed(run["results"]):
        for fix in result.get("fixes", ()):
            new = [r for change in fix["artifactChanges"] for r in _replacements(change, root)]
            if not any(_touch(one, other) for one in new for other in taken):
                taken += new
                count += 1
    for file in {replacement.file for replacement in taken}:
        _replace(file, [replacement for replacement in taken if replacement.file == file])
    return count


def _replacements(change: dict[str, Any], root: Path) -> Iterator[Replacement]:
    file = root / unquote(change["artifactLocation"]["uri"])
    lines = re.split(r"(?<=\n)|(?<=\r)(?!\n)", _read(file))
    starts = [0, *accumulate(len(line.encode("utf-16-le")) // 2 for line in lines)]
    for replacement in change["replacements"]:
        region = replacement["deletedRegion"]
        start = starts[region["startLine"] - 1] + region["startColumn"] - 1
        end = starts[region["endLine"] - 1] + region["endColumn"] - 1
        yield Replacement(file, start, end, replacement["insertedContent"]["text"])


def _touch(one: Replacement, other: Replacement) -> bool:
    return one.file == other.file and one.start <= other.end and other.start <= one.end


def _replace(file: Path, replacements: list[Replacement]) -> None:
    units = _read(file).encode("utf-16-le")
    for one in sorted(replacements, key=lambda one: (one.start, one.end))[::-1]:
        units = units[: 2 * one.start] + one.text.encode("utf-16-le") + units[2 * one.end :]
    mark = _MARK if file.read_bytes().startswith(_MARK) else b""
    file.write_bytes(mark + units.decode("utf-16-le").encode())


def _read(file: Path) -> str:
    return file.read_bytes().removeprefix(_MARK).decode()
