"""Ranks that hang are reported within seconds; ranks that are merely slow are not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from verifier import Verifier
from waiting import LONG, comes

from fsdplint.verify import stacks, watch
from fsdplint.verify.clauses.collectives import collectives
from fsdplint.verify.collective_log import Ring, State
from fsdplint.verify.events import Place, Started
from fsdplint.verify.journal import Tail, encode
from fsdplint.verify.processes import cpu_seconds
from fsdplint.verify.request import SCRATCH

WITHIN = LONG / 2
"""Seconds from a stall to its report, which no timeout ends sooner: a busy machine takes more than
the few that it is by itself, for which the stall is certain."""
FIXTURES = Path(__file__).parents[1] / "fixtures" / "runtime"
GROUP = """
import os
import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
dist.barrier()
"""


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is certain is told at once."""
    monkeypatch.setattr(watch, "SETTLED", 0.5)
    monkeypatch.setattr(watch, "GRACE", 0.5)


def test_a_guarded_collective_is_told_with_stacks(verifier: Verifier, tmp_path: Path) -> None:
    stalls = tmp_path / "stalls"
    run = verifier.observe(
        GROUP + "def report():\n    if rank == 0:\n        dist.all_reduce(torch.ones(4))\n"
        f"open({str(stalls)!r}, 'w').close()\nreport()\ndist.barrier()\n"
    )
    assert time.time() - stalls.stat().st_mtime < WITHIN
    verdict = collectives.judge(run)
    assert run.stall is not None
    assert run.stall.certain
    assert (verdict.status.value, verdict.figures) == (
        "violated",
        "ranks diverge at collective 2 of all ranks: all_reduce [4] on rank 0, barrier on rank 1; "
        "the run hangs",
    )
    assert verdict.details == (
        "rank 0: all_reduce [4] at train.py:12 in report",
        "rank 1: barrier at train.py:15 in <module>",
        "stack of rank 0: train.py:14 in <module> > train.py:12 in report",
        "stack of rank 1: train.py:15 in <module>",
    )
    assert [str(place) for place in verdict.places] == ["train.py:12", "train.py:15"]


@pytest.mark.usefixtures("impatient")
def test_the_whole_verdict_of_a_guarded_barrier(verifier: Verifier) -> None:
    found = verifier(FIXTURES / "barrier-under-guard" / "broken.py")
    assert [v.clause for v in found.violated] == ["collectives"]
    assert [str(p) for p in found.violated[0].places] == ["broken.py:33", "broken.py:49"]
    assert found.exit_code == 1


@pytest.mark.usefixtures("impatient")
def test_a_rank_left_alone_is_told(verifier: Verifier) -> None:
    run = verifier.observe(GROUP + "if rank == 0:\n    dist.barrier()\n")
    assert run.stall is not None
    assert run.stall.certain
    assert set(run.stall.stacks) == {0}
    assert collectives.judge(run).details[:2] == (
        "rank 0: barrier at train.py:11 in <module>",
        "rank 1: finished the script without this collective",
    )


@pytest.mark.usefixtures("impatient")
def test_a_size_that_differs_aborts_gloo_and_is_told(verifier: Verifier) -> None:
    found = verifier(GROUP + "dist.all_reduce(torch.ones(4 + 4 * rank))\n")
    assert [v.clause for v in found.violated] == ["collectives"]
    assert found.violated[0].figures == (
        "ranks diverge at collective 2 of all ranks: all_reduce [4] on rank 0, all_reduce [8] on "
        "rank 1"
    )


@pytest.mark.usefixtures("impatient")
def test_a_crash_is_told_as_a_crash(verifier: Verifier) -> None:
    found = verifier(GROUP + "if rank:\n    raise ValueError('mine')\ndist.barrier()\n")
    assert found.violated == ()
    assert found.failure.startswith("rank 1 failed with ValueError: mine\n")
    assert [rank.ended for rank in found.ranks] == ["stuck", "crash"]


@pytest.mark.usefixtures("impatient")
def test_a_rank_that_dies_is_told_as_dead(verifier: Verifier) -> None:
    found = verifier(GROUP + "if rank:\n    os.kill(os.getpid(), 9)\ndist.barrier()\n")
    assert found.violated == ()
    assert found.failure.startswith("rank 1 was killed by SIGKILL")


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("busy", "idle"), [("time.sleep(0.1)", 10.0), ("sum(range(1000))", 2.0)])
def test_a_rank_may_take_its_time(
    verifier: Verifier, busy: str, idle: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "IDLE", idle)
    late = f"end = time.time() + 3\nwhile rank and time.time() < end:\n    {busy}\n"
    run = verifier.observe(GROUP + late + "dist.barrier()\n")
    assert run.stall is None
    assert collectives.judge(run).status.value == "confirmed"


def test_ranks_that_do_nothing_at_all_are_stopped_and_nobody_is_accused(
    verifier: Verifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "IDLE", 1.5)
    found = verifier(GROUP + "if rank:\n    time.sleep(600)\ndist.barrier()\n")
    assert (found.violated, found.exit_code) == ((), 2)
    assert found.failure.splitlines()[1:] == [
        "rank 0 waits in barrier at train.py:12 in <module>",
        "stack of rank 0: train.py:12 in <module>",
        "stack of rank 1: train.py:11 in <module>",
    ]


def test_a_busy_rank_has_until_the_timeout(verifier: Verifier) -> None:
    code = GROUP + "while rank:\n    sum(range(1000))\ndist.barrier()\n"
    for timeout in 5.0, 20.0, LONG:  # a busy machine takes longer until the ranks are there
        run = verifier.observe(code, timeout=timeout)
        assert run.stall is not None
        if run.stall.stacks:
            break
    assert not run.stall.certain
    assert collectives.judge(run).status.value == "not exercised"
    assert set(run.stall.stacks) == {0, 1}


STACKS = """Thread 0x01 [worker] (most recent call first):
  File "{root}/data.py", line 3 in load
Current thread 0x02 [python] (most recent call first):
  File "/usr/lib/torch/distributed/c10d.py", line 5351 in barrier
  File "{root}/site-packages/lib.py", line 7 in f
  File "{root}/train.py", line 41 in main
  File "{root}/train.py", line 60 in <module>
"""


def test_a_stack_is_the_main_threads_own_lines(tmp_path: Path) -> None:
    (tmp_path / "3.stacks").write_text(STACKS.format(root=tmp_path / SCRATCH))
    assert stacks.read(tmp_path, 3) == (
        Place("train.py", 41, "main"),
        Place("train.py", 60, "<module>"),
    )
    assert stacks.read(tmp_path, 3, offset=1000) == ()
    assert stacks.read(tmp_path, 4) == ()


def test_a_rank_that_has_lost_its_handler_is_not_killed_by_the_question(tmp_path: Path) -> None:
    deaf = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert deaf.stdin is not None and deaf.stdout is not None
    with deaf.stdin, deaf.stdout:
        assert stacks.ask(tmp_path, {0: deaf.pid}) == {0: ()}
        deaf.stdin.write(b"alive")
        deaf.stdin.close()
        assert deaf.stdout.read() == b"alive"
    assert deaf.wait() == 0


def test_processor_time_counts_for_all_of_a_group() -> None:
    work = "import time\nend = time.process_time() + 0.4\nwhile time.process_time() < end: pass\n"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {work!r}]); input()"
    leader = subprocess.Popen(
        [sys.executable, "-c", child], stdin=subprocess.PIPE, start_new_session=True
    )
    try:
        assert comes(lambda: cpu_seconds([leader.pid])[leader.pid] >= 0.3)
    finally:
        os.killpg(leader.pid, signal.SIGKILL)
        leader.communicate()


def test_a_tail_reads_each_line_once(tmp_path: Path) -> None:
    tail = Tail(tmp_path / "log")
    assert tail.lines() == []
    with (tmp_path / "log").open("w") as file:
        for text, lines in [("a\nb", ["a"]), ("c", []), ("\n\nd\n", ["bc", "", "d"]), ("", [])]:
            file.write(text)
            file.flush()
            assert tail.lines() == lines


class Running:
    """A launcher that has not ended."""

    def running(self) -> bool:
        return True

    def wait(self) -> None: ...

    def stop(self) -> None: ...

    def output(self) -> str:
        return ""


@pytest.mark.parametrize(("world_size", "timeout", "told"), [(1, LONG, True), (2, 1.5, False)])
def test_ranks_of_other_nodes_may_be_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world_size: int, timeout: float, told: bool
) -> None:
    monkeypatch.setattr(watch, "IDLE", 0.2)
    monkeypatch.setattr(watch, "_QUIET", 0.1)
    log = Ring(tmp_path / "0.ring")
    log.note(log.issue("0,1/0", "barrier", (), 0, 0, None), State.WAITING)
    started = Started(0, 0, world_size, 1, 1, "2.13.0", "cpu", True, 1.0)
    (tmp_path / "0.jsonl").write_text(f"{encode(started)}\n")
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as rank:
        (tmp_path / "0.pid").write_text(str(rank.pid))
        began = time.monotonic()
        stall = watch.watch(Running(), tmp_path, 1, timeout, lambda _: None)
        rank.kill()
    assert stall is not None
    assert (time.monotonic() - began < timeout) is told
