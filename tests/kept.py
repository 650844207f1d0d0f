"""Runs of `check` with the cache turned on."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from fsdplint.cache.folder import place
from fsdplint.cache.replay import replay
from fsdplint.cli.main import main

SCRIPT = """\
from torch.distributed.fsdp import fully_shard

from helpers import build

model = build()
fully_shard(model)
loss = model.forward(batch)
"""
HELPERS = """\
import torch


def build():
    return torch.nn.Linear(8, 8)
"""


@dataclass(frozen=True)
class Told:
    """What a run printed and its exit code; None if it is not known."""

    code: int | None
    out: str = ""
    err: str = ""


class Runs:
    """Runs in the current folder, by what they print."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def made(self, *arguments: str) -> Told:
        """A run that is made, whatever is known."""
        with pytest.raises(SystemExit) as ended:
            main(["check", *arguments])
        assert isinstance(ended.value.code, int)
        return Told(ended.value.code, *self.capsys.readouterr())

    def known(self, *arguments: str) -> Told:
        """The run if it is known; nothing is made."""
        code = replay(["check", *arguments])
        return Told(code, *self.capsys.readouterr())

    def told(self) -> Told:
        """What was printed since the last run."""
        return Told(None, *self.capsys.readouterr())

    def uncached(self, *arguments: str) -> Told:
        """A run without the cache."""
        os.environ["FSDPLINT_NO_CACHE"] = "1"
        try:
            return self.made(*arguments)
        finally:
            del os.environ["FSDPLINT_NO_CACHE"]


UNKNOWN = Told(None)


def entries() -> list[Path]:
    """The files of the kept runs."""
    return sorted(Path(place()).glob("*.run"))


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
