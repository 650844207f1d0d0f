"""One verification from its request to its result."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import NoReturn

from fsdplint.verify.clauses.equivalence import equivalence
from fsdplint.verify.clauses.resume import resume
from fsdplint.verify.evidence import Run, gather
from fsdplint.verify.figures import plural, size
from fsdplint.verify.judge import judge, judged
from fsdplint.verify.kept import chosen, files
from fsdplint.verify.launch import Elastic, Launcher
from fsdplint.verify.notebook import NOTEBOOK, not_run
from fsdplint.verify.processes import lifeline, read_deaths
from fsdplint.verify.request import RELEASE, SCRATCH, Request
from fsdplint.verify.verdict import Status, Verdict, Verification, is_violated
from fsdplint.verify.watch import watch
from fsdplint.verify.workspace import VerifyError, preserve, stage, surround, workspace

OLDEST = (2, 6)
_INSTALL = "pip install 'fsdplint[verify]'"
_SIGNALLED = 128
"""What shells add to a signal's number for the exit status."""
_RANK = 200 * 2**20
"""Bytes of private memory that a rank needs for PyTorch alone (torch 2.13 on a CPU)."""


def verify(
    request: Request,
    directory: Path,
    *,
    overlay: Mapping[str, bytes] = MappingProxyType({}),
    launcher: Launcher = Elastic,
    progress: Callable[[str], None] = lambda _: None,
) -> Verification:
    """Run the request's script in a scratch copy of `directory` and judge what it did.

    Args:
        overlay: files that replace those of the directory, by their path in it.

    Raises:
        VerifyError: torch or the script is missing, there is too little memory for the ranks, or
            the directory cannot be copied.
    """
    check_request(request, directory)

    def run(wanted: Request) -> Run:
        return observe(wanted, directory, overlay, launcher, progress)

    return _with_notes(_verified(request, run), directory)


def check_request(request: Request, directory: Path) -> None:
    """Check that a request can be run.

    Raises:
        VerifyError: torch or the script is missing, or there is too little memory for the ranks.
    """
    if reason := missing():
        raise VerifyError(reason)
    if not (directory / request.script).is_file():
        raise VerifyError(f"{request.script}: no such file under {directory}")
    if reason := _too_many(request.ranks):
        raise VerifyError(reason)


def _verified(request: Request, run: Callable[[Request], Run]) -> Verification:
    """Run the script as often as the request needs, and judge it."""
    if request.resume:
        saving, verdict = restarted(request, run)
        found = judge(request, saving, (verdict,))
        if verdict.status is Status.NOT_EXERCISED and not found.failure:
            return replace(found, failure=f"the resumed run could not be judged: {verdict.figures}")
        return found
    if not request.reference:
        return judge(request, run(request))
    sharded, verdict = compared(request, run)
    return judge(request, sharded, (verdict,))


def _with_notes(found: Verification, directory: Path) -> Verification:
    """Add a note on the notebook lines that no rank runs."""
    if not found.script.endswith(NOTEBOOK):
        return found
    return replace(found, notes=(*found.notes, *not_run(directory / found.script)))


def missing() -> str:
    """Return one sentence on what to install; empty where all is there."""
    if find_spec("torch") is None:
        return f"verify needs PyTorch to run the script: {_INSTALL}"
    try:
        found = metadata.version("torch")
    except metadata.PackageNotFoundError:  # built in place: its ranks will fail
        return ""
    numbers = re.match(r"(\d+)\.(\d+)", found)
    if numbers and (int(numbers[1]), int(numbers[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        return f"verify needs PyTorch {oldest} or newer, but this is {found}: {_INSTALL}"
    return ""


def compared(request: Request, run: Callable[[Request], Run]) -> tuple[Run, Verdict]:
    """Return the sharded run, and the verdict on whether the unsharded one computes the same."""
    with workspace() as folder:
        sharded = run(replace(request, capture=str(folder)))
        kept = {file.name.split(".")[0] for file in folder.glob("*.stride")}
        if len(kept) < sharded.world_size:
            return sharded, equivalence(sharded, None)
        alone = replace(request, replay=str(folder), ranks=1, launcher=())
        return sharded, equivalence(sharded, run(alone))


def restarted(request: Request, run: Callable[[Request], Run]) -> tuple[Run, Verdict]:
    """Return the run that saves, and the verdict on the runs that resume from its save.

    A clause that a resumed run alone violates is a violation of the resumption.
    """
    with workspace() as folder:
        saving = run(replace(request, keep=str(folder)))
        again = [
            run(
                replace(
                    request,
                    arguments=(*request.arguments, *request.resume_arguments),
                    ranks=ranks,
                    resumed=str(folder),
                )
            )
            for ranks in request.resume
            if chosen(folder) is not None
        ]
        kept = {v.clause for v in judged(saving) if v.status is Status.CONFIRMED}
        broken = [[v for v in judged(run) if is_violated(v) and v.clause in kept] for run in again]
        return saving, resume(saving, list(zip(again, broken, strict=True)))


def _too_many(ranks: int) -> str:
    """Return one sentence if the ranks alone would take all memory; empty otherwise."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if ranks * _RANK <= memory:
        return ""
    return (
        f"{plural(ranks, 'rank')} need about {size(ranks * _RANK)} of memory, "
        f"but this machine has {size(memory)}"
    )


def _staged(request: Request, directory: Path) -> Path:
    """Return the folder that the run gets a copy of."""
    step = chosen(Path(request.resumed)) if request.resumed else None
    return directory if step is None else files(Path(request.resumed), step)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a verification as Ctrl-C does, without leftovers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, _leave)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _leave(number: int, _: FrameType | None) -> NoReturn:
    signal.signal(number, signal.SIG_IGN)
    sys.exit(_SIGNALLED + number)


def observe(
    request: Request,
    directory: Path,
    overlay: Mapping[str, bytes],
    launcher: Launcher,
    progress: Callable[[str], None],
) -> Run:
    """Run the script and return the evidence of its ranks; nothing else stays."""
    with _ended_by_signals(), workspace() as folder:
        stage(_staged(request, directory), folder / SCRATCH)
        surround(directory, folder / SCRATCH)
        if not (folder / SCRATCH / request.script).is_file():
            raise VerifyError(f"{request.script} is in a folder that verify does not copy")
        for path, content in overlay.items():
            (folder / SCRATCH / path).unlink(missing_ok=True)
            (folder / SCRATCH / path).write_bytes(content)
        replace(request, directory=str(directory.absolute())).write(folder)
        began = time.monotonic()
        with lifeline(folder):
            launched = launcher(request, folder)
            try:
                stall = watch(launched, folder, request.ranks, request.timeout, progress)
                if stall is None:
                    (folder / RELEASE).touch()
                    launched.wait()
                ends = read_deaths(folder)  # before the rest is killed
            finally:
                launched.stop()
        if request.keep and (step := chosen(Path(request.keep))) is not None:
            preserve(folder / SCRATCH, files(Path(request.keep), step))
        return gather(folder, stall, ends, launched.output(), time.monotonic() - began)
