"""Runs one program in one configuration, its ranks being forks of this process."""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from benchmarks.differential.program import Configuration
from benchmarks.differential.record import DIED, HUNG, SLOW, Rank, Run
from fsdplint.verify.processes import fork, has_ended, reap, reserved_port

_LIMIT = 90.0
"""Seconds a run may take altogether."""
_INTERVAL = 0.02
_STILL = 200
"""Looks in a row, 4 s or more, that find no work: ranks wait for something that does not come.

A rank that is there before rank 0 listens tries again after up to 0.75 s, then 1.1 and 1.7 s. Looks
are counted, not seconds: in those for which a busy machine stops, this process stops as well.
"""


def execute(files: Mapping[str, str], entry: str, configuration: Configuration) -> Run:
    """Run a program to its end, in a folder of its own."""
    from benchmarks.differential.rank import live

    folder = Path(tempfile.mkdtemp(prefix="differential-")).resolve()
    try:
        _write(files, folder)
        with reserved_port() as port:
            pids = [
                fork(partial(live, folder, entry, configuration, rank, port))
                for rank in range(configuration.ranks)
            ]
            causes = _wait(pids, folder)
        ranks = tuple(_rank(folder, rank, cause) for rank, cause in enumerate(causes))
        return Run(ranks, _left(folder / "cwd", files))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write(files: Mapping[str, str], folder: Path) -> None:
    (folder / "tmp").mkdir()
    (folder / "cwd").mkdir()
    for path, text in files.items():
        target = folder / "cwd" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def _wait(pids: list[int], folder: Path) -> list[str]:
    """Wait for all ranks, but not for those that only wait for others; return how each ended."""
    end = time.monotonic() + _LIMIT
    worked, still = -1, 0
    left = pids
    while left and still < _STILL and time.monotonic() < end:
        time.sleep(_INTERVAL)
        left = [
            pid
            for rank, pid in enumerate(pids)
            if not (has_ended(pid) or (folder / f"{rank}.json").exists())
        ]
        work = sum(map(_work, left))
        worked, still = work, still + 1 if work == worked else 0
    reason = SLOW if still < _STILL else HUNG
    waiting = [not has_ended(pid) for pid in pids]
    ends = [reap(pid) for pid in pids]
    causes = [SLOW if end == -signal.SIGXCPU else str(end) for end in ends]
    return [reason if late else cause for late, cause in zip(waiting, causes, strict=True)]


def _work(pid: int) -> int:
    """Return a number that changes while a process works or wants to: its time on the CPU."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    running = time.monotonic_ns() if fields[0] in "RD" else 0
    return int(fields[11]) + int(fields[12]) + running


def _rank(folder: Path, rank: int, cause: str) -> Rank:
    report = folder / f"{rank}.json"
    if report.exists():
        return Rank.from_json(json.loads(report.read_text()))
    lines = (folder / f"{rank}.out").read_text(errors="replace").splitlines()
    return Rank(cause if cause in (HUNG, SLOW) else DIED, cause, lines=lines)


def _left(folder: Path, files: Mapping[str, str]) -> dict[str, str]:
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    new = {path.relative_to(folder).as_posix(): path for path in paths if path.suffix != ".pyc"}
    return {
        name: hashlib.sha1(path.read_bytes(), usedforsecurity=False).hexdigest()
        for name, path in new.items()
        if name not in files
    }
