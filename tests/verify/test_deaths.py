"""The rank that failed first is the headline, not the ranks that lost their connection to it."""

from __future__ import annotations

from pathlib import Path

import pytest
from verifier import Verifier

from fsdplint.verify.events import Ended
from fsdplint.verify.evidence import RankRun, Run
from fsdplint.verify.judge import failures, stopped
from fsdplint.verify.processes import Death, death_sentence
from fsdplint.verify.report import render
from fsdplint.verify.report.ending import how
from fsdplint.verify.request import Request
from fsdplint.verify.run import verify
from fsdplint.verify.verdict import Verification

TRAINING = """
import ctypes, os, signal, sys, threading, time
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
model = torch.nn.Linear(4, 4)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def strike():
    STATEMENT

try:
    for step in range(5):
        if step == 1 and dist.get_rank() == 1:
            time.sleep(0.2)  # rank 0 waits in the all-gather by now
            strike()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
finally:
    dist.destroy_process_group()
"""
STRIKE = "at train.py:13"
SEGV = f"rank 1 was killed by SIGSEGV {STRIKE}"
KILL = "rank 1 was killed by SIGKILL, which the system sends when memory runs out (see dmesg)"
EXIT = "rank 1 exited with status 3 before the end of its script"
ENDS = [
    ("os.kill(os.getpid(), signal.SIGSEGV)", SEGV, "killed by SIGSEGV"),
    ("ctypes.string_at(0)", SEGV, "killed by SIGSEGV"),
    ("os.abort()", f"rank 1 was killed by SIGABRT {STRIKE}", "killed by SIGABRT"),
    ("os.kill(os.getpid(), signal.SIGTERM)", "rank 1 was killed by SIGTERM", "killed by SIGTERM"),
    ("os.kill(os.getpid(), signal.SIGKILL)", KILL, "killed by SIGKILL"),
    ("os._exit(3)", EXIT, "exited with status 3"),
    ("raise ValueError('mine')", "rank 1: ValueError: mine", "crashed"),
    ("sys.exit(5)", "rank 1: SystemExit: 5", "exited with an error"),
]


def check(found: Verification, headline: str, ended: str) -> None:
    assert (found.violated, found.exit_code) == ((), 2)
    for format_ in ("text", "html"):
        report = render(found, format_, Path(), color=False, width=500)
        assert f"The script did not finish: {headline}" in report
    first = next(
        line
        for line in render(found, "text", Path(), color=False, width=500).split("\n")
        if line.startswith("! ")
    )
    assert first.startswith("! rank 1 ")
    assert found.failure.startswith("rank 1 ")
    assert how(found.ranks[1]) == ended


@pytest.mark.parametrize(("statement", "headline", "ended"), ENDS)
def test_the_rank_that_failed_first_is_the_headline(
    verifier: Verifier, statement: str, headline: str, ended: str
) -> None:
    check(verifier(TRAINING.replace("STATEMENT", statement)), headline, ended)


@pytest.mark.parametrize(("statement", "headline", "ended"), [ENDS[1], ENDS[4]])
def test_torchrun_tells_how_a_rank_died(
    tmp_path: Path, statement: str, headline: str, ended: str
) -> None:
    (tmp_path / "train.py").write_text(TRAINING.replace("STATEMENT", statement))
    check(verify(Request("train.py", device="cpu"), tmp_path), headline, ended)


LOST = "RuntimeError: [gloo/pair.cc:553] Connection closed by peer [127.0.0.1]:17843."


def crash(time: float, traceback: str = "ValueError: mine", kind: str = "ValueError") -> Ended:
    return Ended("crash", 1, kind, traceback, traceback, (), time)


def run(*ends: Ended | Death | None, output: str = "") -> Run:
    return Run(
        tuple(
            RankRun(
                rank,
                (end,) if isinstance(end, Ended) else (),
                (),
                output,
                end if isinstance(end, Death) else None,
            )
            for rank, end in enumerate(ends)
        )
    )


@pytest.mark.parametrize(
    ("found", "order"),
    [
        (run(crash(2.0), crash(1.0, kind="KeyError")), [1, 0]),
        (run(crash(2.0), crash(1.0)), [0, 1]),
        (run(crash(3.0), crash(2.0, kind="KeyError"), crash(1.0)), [0, 2, 1]),
        (run(crash(1.0, LOST), crash(1.1)), [1, 0]),
        (run(crash(1.0, LOST), Death(-9, 1.2)), [1, 0]),
        (run(crash(1.0, "unknown words for a lost connection"), Death(-11, 1.1)), [1, 0]),
        (run(crash(1.0), Death(-11, 2.0)), [0, 1]),
        (run(Death(-15, 2.0), crash(1.5, LOST), Death(-6, 1.0)), [2, 1]),
        (run(Death(-6, 1.0), Death(-11, 1.2), output=LOST), [1, 0]),
        (run(Death(-15, 1.0), Ended("steps", 3)), [0]),
        (run(None, crash(1.0)), [1, 0]),
        (run(Ended("script", 3), Ended("steps", 3)), []),
    ],
)
def test_failures_come_in_the_order_of_their_causes(found: Run, order: list[int]) -> None:
    assert [rank.rank for rank in failures(found)] == order


def test_a_rank_that_the_launcher_ends_has_not_failed() -> None:
    found = run(Death(-15, 2.0), Death(-9, 1.0), Death(0, 0.5), Death(-9, 1.0))
    assert [stopped(found, rank) for rank in found.ranks] == [True, False, False, False]


@pytest.mark.parametrize(
    ("ranks", "status", "said"),
    [
        ([1], -11, "rank 1 was killed by SIGSEGV"),
        ([0, 1], -6, "ranks 0, 1 were killed by SIGABRT"),
        ([1], -200, "rank 1 was killed by signal 200"),
        ([0, 1], 0, "ranks 0, 1 exited with status 0 before the end of their script"),
        ([1], None, "rank 1 died"),
    ],
)
def test_deaths_in_words(ranks: list[int], status: int | None, said: str) -> None:
    assert death_sentence(ranks, status) == said


LEAVING = "import os\nif os.fork() == 0:\n    os._exit(0)\nos.wait()\nos._exit(STATUS)\n"


@pytest.mark.parametrize(("status", "ended"), [(0, "script"), (3, "died")])
def test_a_script_may_end_without_cleaning_up(verifier: Verifier, status: int, ended: str) -> None:
    found = verifier(LEAVING.replace("STATUS", str(status)))
    assert [rank.ended for rank in found.ranks] == [ended] * 2
