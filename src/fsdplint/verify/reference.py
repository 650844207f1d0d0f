"""Runs a script twice: sharded, and again in one process where what it computed is played back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fsdplint.verify.clauses.equivalence import equivalence
from fsdplint.verify.evidence import Run
from fsdplint.verify.request import Request
from fsdplint.verify.verdict import Verdict
from fsdplint.verify.workspace import workspace


def compared(request: Request, run: Callable[[Request], Run]) -> tuple[Run, Verdict]:
    """Returns the sharded run, and whether the unsharded one computes the same."""
    with workspace() as folder:
        sharded = run(replace(request, capture=str(folder)))
        kept = {file.name.split(".")[0] for file in folder.glob("*.stride")}
        if len(kept) < sharded.world_size:
            return sharded, equivalence(sharded, None)
        alone = replace(request, replay=str(folder), ranks=1, launcher=())
        return sharded, equivalence(sharded, run(alone))
