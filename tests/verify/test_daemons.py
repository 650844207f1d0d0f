"""What a script starts ends with its run, also what it has detached from itself twice.

That it ends with a run that is ended by a signal is in test_launch.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from fsdplint.verify.launch import Elastic
from fsdplint.verify.request import Request
from fsdplint.verify.run import verify
from fsdplint.verify.warm_launcher import Warm

SCRIPT = """
import os, sys, time

def daemon(bare):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            open(os.path.join(sys.argv[1], str(os.getpid())), "w").close()
            if bare:  # as a daemon that clears its environment
                os.execve("/bin/sleep", ["sleep", "600"], {})
            time.sleep(600)
        os._exit(0)
    os.wait()

daemon(bare=False)
daemon(bare=True)
while len(os.listdir(sys.argv[1])) < 4:
    time.sleep(0.01)
"""
STAYING = SCRIPT + "open(sys.argv[1] + os.environ['RANK'], 'w').close()\ntime.sleep(600)\n"


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Path]:
    """Where daemons leave their ids."""
    folder = tmp_path / "started"
    folder.mkdir()
    yield folder
    for pid in alive(folder):
        os.kill(pid, signal.SIGKILL)


def project(tmp_path: Path, script: str) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(script)
    return folder


def alive(started: Path) -> list[int]:
    """Returns the daemons that still run; zombies of a parent that does not reap have ended."""
    found = []
    for file in started.iterdir():
        with suppress(OSError):
            state = Path(f"/proc/{file.name}/stat").read_text().rpartition(") ")[2][0]
            found += [int(file.name)] if state != "Z" else []
    return found


@pytest.mark.parametrize("warm_ranks", [True, False])
def test_daemons_end_with_their_run(
    tmp_path: Path, started: Path, warm: Warm, warm_ranks: bool
) -> None:
    request = Request("train.py", (str(started),), device="cpu")
    directory = project(tmp_path, SCRIPT)
    own = subprocess.Popen(["sleep", "600"])
    try:
        found = verify(request, directory, launcher=warm if warm_ranks else Elastic)
        assert [rank.ended for rank in found.ranks] == ["script", "script"]
        assert (len(list(started.iterdir())), alive(started)) == (4, [])
        assert own.poll() is None  # it is not the run's
    finally:
        own.kill()
        own.wait()


def test_a_run_ends_no_daemon_of_another(tmp_path: Path, started: Path, warm: Warm) -> None:
    directory = project(tmp_path, STAYING)
    (directory / "other.py").write_text("")

    class Enough(Exception):
        pass

    def tell(_: str) -> None:
        if len(list(tmp_path.glob("started?"))) == 2:
            verify(Request("other.py", device="cpu"), directory, launcher=warm)
            assert len(alive(started)) == 4
            raise Enough

    with pytest.raises(Enough):
        verify(
            Request("train.py", (str(started),), device="cpu"),
            directory,
            launcher=warm,
            progress=tell,
        )
    assert alive(started) == []


def test_daemons_are_known_by_their_environment_too(tmp_path: Path, started: Path) -> None:
    launched: list[Elastic] = []

    def launcher(request: Request, folder: Path) -> Elastic:
        launched.append(Elastic(request, folder))
        return launched[0]

    def tell(_: str) -> None:
        if len(list(tmp_path.glob("started?"))) == 2 and launched[0].running():
            os.kill(launched[0].pid, signal.SIGKILL)

    script = STAYING.replace("daemon(bare=True)", "daemon(bare=False)")
    request = Request("train.py", (str(started),), device="cpu")
    found = verify(request, project(tmp_path, script), launcher=launcher, progress=tell)
    assert [rank.ended for rank in found.ranks] == ["died", "died"]
    assert (len(list(started.iterdir())), alive(started)) == (4, [])
