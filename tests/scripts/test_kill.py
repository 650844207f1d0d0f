"""A run that is killed leaves every file as it was or as it becomes, and the next run goes on."""

from __future__ import annotations

import random
from pathlib import Path

from benchmarks.kill import Tally, files, judge, kill, lay_out


def test_no_kill_tears_or_loses_a_file(tmp_path: Path) -> None:
    tally = kill(tmp_path / "tree", count=20, kills=2, seed=1, writes=10)
    assert (tally.faults, tally.killed) == ([], 12)
    assert set(tally.seen) <= {"old", "new"}


def test_what_is_wrong_is_seen(tmp_path: Path) -> None:

    tree = files(tmp_path, 4, random.Random(0))
    lay_out(tree)
    torn, lost, mode, _ = (file.path for file in tree)
    torn.write_bytes(tree[0].old[:-1])
    lost.unlink()
    mode.chmod(0o600)
    (tmp_path / "p0/f0.py~").write_text("")
    (tmp_path / "p0/.fsdplint-1").write_text("")
    tally = Tally()
    judge(tmp_path, tree, tally)
    assert tally.faults == [
        f"{torn}: torn",
        f"{lost}: lost",
        f"{mode}: has another mode",
        f"{tmp_path}/p0/f0.py~: is not known",
        "2 files were left at once",
    ]
