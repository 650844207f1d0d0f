"""Verifies scripts on ranks that are forked from one process with torch loaded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from waiting import LONG

from fsdplint.verify.evidence import Run
from fsdplint.verify.request import Request
from fsdplint.verify.run import observe, verify
from fsdplint.verify.verdict import Verification
from fsdplint.verify.warm_launcher import Warm


class Verifier:
    """What the fixture `verifier` gives to tests."""

    def __init__(self, warm: Warm, folders: pytest.TempPathFactory) -> None:
        self._warm, self._folders = warm, folders

    def __call__(
        self,
        script: str | Path,
        *,
        ranks: int = 2,
        steps: int | None = 3,
        arguments: Sequence[str] = (),
        timeout: float = LONG,
    ) -> Verification:
        """Verifies a script's text, or a file in a copy of its folder, with CUDA on the CPU."""
        script = self._file(script)
        request = Request(script.name, tuple(arguments), ranks, steps, "cpu", timeout)
        return verify(request, script.parent, launcher=self._warm)

    def observe(self, script: str | Path, *, ranks: int = 2, timeout: float = LONG) -> Run:
        """Runs a script to its end and returns what its ranks left behind, not yet judged."""
        script = self._file(script)
        request = Request(script.name, (), ranks, None, "cpu", timeout)
        return observe(request, script.parent, {}, self._warm, lambda _: None)

    def _file(self, script: str | Path) -> Path:
        if isinstance(script, Path):
            return script
        file = self._folders.mktemp("script") / "train.py"
        file.write_text(script, "utf-8")
        return file
