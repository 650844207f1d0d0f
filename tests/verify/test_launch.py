"""Ranks under torchrun: how they start, and that nothing of them stays, however they end."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from processes import gone, started_with
from test_daemons import STAYING, alive, started
from waiting import LONG, comes

from fsdplint.verify.launch import Elastic
from fsdplint.verify.processes import lifeline, reserved_port
from fsdplint.verify.request import SCRATCH, Request
from fsdplint.verify.run import verify
from fsdplint.verify.verdict import Verification
from fsdplint.verify.warm_launcher import Warm
from fsdplint.verify.workspace import VerifyError, remove_leftovers

__all__ = ["started"]  # a fixture

TRAINING = """
import os
os.environ["MASTER_PORT"] = "29500"
os.environ["MASTER_ADDR"] = "127.0.0.1"
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo", init_method="tcp://127.0.0.1:29500")
model = torch.nn.Linear(4, 4)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
"""
CHILD = "import subprocess\nsubprocess.Popen(['sleep', '600'])\n"
CRASHING = """
import os, tempfile
tempfile.mkstemp()
if os.environ["RANK"] == "1":
    raise ValueError(os.environ["MASTER_PORT"])
"""
VERIFY = "import sys; from fsdplint.cli.main import main; sys.exit(main())"


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go, for this process and those it starts."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return folder


def project(tmp_path: Path, script: str) -> Path:
    folder = tmp_path / "project"
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(script)
    return folder


@pytest.mark.parametrize(
    ("number", "scripts"),
    [(signal.SIGINT, 2), (signal.SIGKILL, 2), (signal.SIGTERM, 0)],
)
def test_a_signal_leaves_no_process(
    tmp_path: Path, scratch: Path, started: Path, number: signal.Signals, scripts: int
) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", VERIFY, "verify", "train.py", str(started)],
        cwd=project(tmp_path, f"{CHILD}{STAYING}"),
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        # A shell's background jobs, which these tests may be one of, ignore Ctrl-C.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    everyone = 5 + scripts  # parent, keeper, agent, ranks and what they started
    assert comes(lambda: len(list(tmp_path.glob("started?"))) >= scripts)
    assert comes(lambda: len(started_with(str(scratch))) >= everyone)
    assert len(alive(started)) == 4 or not scripts
    parent.send_signal(number)
    parent.wait(timeout=LONG)
    if number == signal.SIGKILL:
        assert comes(lambda: not alive(started))
    assert alive(started) == []
    assert gone(str(scratch))
    if number == signal.SIGKILL:
        assert len(list(scratch.iterdir())) == 1
        remove_leftovers()
    assert list(scratch.iterdir()) == []


def test_a_crash_under_torchrun_leaves_nothing(tmp_path: Path, scratch: Path) -> None:
    found = verify(Request("train.py", steps=None), project(tmp_path, CRASHING))
    crash = found.failure.splitlines()[0]
    assert crash.startswith("rank 1 failed with ValueError: ")
    assert [rank.ended for rank in found.ranks] == ["script", "crash"]
    assert found.exit_code == 2
    assert started_with("FSDPLINT_VERIFY=" + str(scratch)) == []
    assert list(scratch.iterdir()) == []
    with socket.socket() as client:
        assert client.connect_ex(("127.0.0.1", int(crash.split()[-1]))) != 0


def both(runs: list[tuple[Request, Path]], launcher: object = None) -> list[Verification]:
    """Verifies all at the same time."""
    found: dict[int, Verification] = {}
    options = {} if launcher is None else {"launcher": launcher}

    def one(number: int, request: Request, directory: Path) -> None:
        found[number] = verify(request, directory, **options)  # type: ignore[arg-type]

    threads = [threading.Thread(target=one, args=(number, *run)) for number, run in enumerate(runs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[number] for number in range(len(runs))]


def test_two_at_once_do_not_meet(tmp_path: Path, warm: Warm) -> None:
    directory = project(tmp_path, TRAINING)
    runs = [(Request("train.py", steps=20, device="cpu"), directory)] * 2
    for found in both(runs, warm):
        assert (found.failure, found.world_size) == ("", 2)
        assert [(rank.ended, rank.steps) for rank in found.ranks] == [("steps", 20)] * 2


def test_two_nodes_are_one_job(tmp_path: Path) -> None:
    directory = project(tmp_path, TRAINING)
    with reserved_port() as port:
        runs = [
            (
                Request(
                    "train.py",
                    ranks=1,
                    device="cpu",
                    launcher=(
                        "--nnodes=2",
                        f"--node-rank={node}",
                        "--master-addr=127.0.0.1",
                        f"--master-port={port}",
                    ),
                ),
                directory,
            )
            for node in (0, 1)
        ]
        found = both(runs)
    assert [f.failure for f in found] == ["", ""]
    assert [(f.world_size, [rank.rank for rank in f.ranks]) for f in found] == [(2, [0]), (2, [1])]
    assert [f.notes for f in found] == [("1 of 2 ranks ran on other nodes",)] * 2


def test_more_ranks_than_memory_are_refused(tmp_path: Path) -> None:
    ranks = 10**6
    with pytest.raises(
        VerifyError, match=r"1,000,000 ranks need about 191 TiB of memory, but this"
    ):
        verify(Request("train.py", ranks=ranks), project(tmp_path, CRASHING))


def test_stopping_waits_for_nobody_on_one_node(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsdplint.verify.launch.PATIENCE", LONG)
    (scratch / SCRATCH).mkdir(parents=True)
    (scratch / SCRATCH / "train.py").write_text("import time\ntime.sleep(600)\n")
    request = Request("train.py", device="cpu")
    request.write(scratch)
    with lifeline(scratch):
        launched = Elastic(request, scratch)
        time.sleep(1.0)  # it imports torch, and no rank has begun
        began = time.monotonic()
        launched.stop()
    assert time.monotonic() - began < LONG / 2
    assert started_with(f"FSDPLINT_VERIFY={scratch}") == []


def test_stopping_does_not_wait_for_a_lock_that_an_interrupt_left_held(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Ctrl-C leaves it where it arrives inside `Popen.poll`."""
    monkeypatch.setattr("fsdplint.verify.launch.PATIENCE", 1.0)
    (scratch / SCRATCH).mkdir(parents=True)
    (scratch / SCRATCH / "train.py").write_text("import time\ntime.sleep(600)\n")
    request = Request("train.py", device="cpu")
    request.write(scratch)
    with lifeline(scratch):
        launched = Elastic(request, scratch)
        launched._agent._waitpid_lock.acquire()  # type: ignore[attr-defined]  # CPython's
        stopping = threading.Thread(target=launched.stop, daemon=True)
        stopping.start()
        stopping.join(LONG)
    assert not stopping.is_alive()
    assert gone(f"FSDPLINT_VERIFY={scratch}")
