"""Asks torch: runs the programs and their mutants on two CPU ranks.

A correct program runs, its optimizers step over the model's own parameters, no slice of a state
is written as the whole, and no model is a single unit: the exit status is 1 otherwise. A mutant
shows the harm its rule speaks of; those that do not are listed. They are wrong at a place that
this run does not come to, or call `forward` on a root that an earlier call has left gathered.
Needs torch; nothing here is needed to run the benchmark itself.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import runpy
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from benchmarks.detection.mutators import mutate
from benchmarks.detection.probes import Observed, install
from benchmarks.detection.program import Mutant, Program, load_all

WORLD = 2
_STALE = {"gradient-sync-left-off", "optimizer-before-sharding", "root-unsharded-after-eval"}
"""The rules of optimizers that step over parameters without gradients."""
_NO_GRADIENT = ("'Tensor' object has no attribute 'full_tensor'", "!nested_tensorlist[0].empty()")
"""What clipping by norm, gathered, and by value says where there are none."""
TIMEOUT = 120.0


@dataclass(frozen=True, slots=True)
class Run:
    """One way to start a program or a mutant of it; ``rule`` is "" where it must be correct."""

    name: str
    rule: str
    files: dict[str, str]
    program: Program
    args: tuple[str, ...]


def runs(seed: int, mutants: bool, rule: str, name: str) -> list[Run]:
    found = []
    for program in load_all():
        if not program.launch or name not in program.name:
            continue
        if not rule:
            found += [
                Run(f"{program.name} {' '.join(args)}", "", dict(program.files), program, args)
                for args in program.args
            ]
        for made in mutate(program, seed) if mutants else []:
            if rule in made.rule and not _cannot_run(program, made):
                found += [_mutant_run(program, made, args) for args in _args(program, made)]
    return found


def _cannot_run(program: Program, made: Mutant) -> bool:
    """Whether a mutant wants files that no run has written, or packages that torch does not."""
    wanted = ("torch.load(", "load_file(", "pickle.load(", "from transformers", "from accelerate")
    changed = [text for path, text in made.files.items() if program.files[path] != text]
    before = "".join(program.files.values())
    return any(what in text and what not in before for text in changed for what in wanted)


def _args(program: Program, made: Mutant) -> list[tuple[str, ...]]:
    """A mistake may show in one way of running the program; no mistake must show in none."""
    if made.rule:
        wanted = "fsdp1" if "policy" in made.kind else "fsdp2"
        return sorted(program.args, key=lambda args: wanted not in args)[:1]
    return list(program.args)


def _mutant_run(program: Program, made: Mutant, args: tuple[str, ...]) -> Run:
    name = f"{made.program}: {made.rule or 'legal'}: {made.kind}"
    return Run(name, made.rule, dict(made.files), program, args)


def repaired(run: Run) -> Run | None:
    """``run`` with its mistake fixed, which must be correct then; None if it is left as it is."""
    # Not needed by those who only ask torch.
    from fsdplint.check import check
    from fsdplint.fixes.apply import fixed
    from fsdplint.settings.config import defaults
    from fsdplint.settings.rule_selection import EVERYTHING

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        write(run.files, folder)
        outcome = check([folder], defaults(EVERYTHING))
        changes = fixed(
            outcome, lambda overlay: check([folder], defaults(EVERYTHING), overlay), unsafe=True
        )
    texts = {Path(new.path).relative_to(folder).as_posix(): new.text for _, new in changes.files}
    if not texts:
        return None
    return replace(run, name=f"fixed: {run.name}", rule="", files={**run.files, **texts})


def write(files: dict[str, str], folder: Path) -> None:
    """Put a program's files into a folder."""
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def judge(run: Run) -> str:
    """ "" if ``run`` behaves as it must, else what is wrong."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        write(run.files, Path(folder))
        observed, late = _observe(run, Path(folder))
    harms = _harms(observed)
    if run.rule:
        return "" if run.rule in harms else f"no harm seen: {observed}"
    silent = ["a rank said nothing"] if len(observed) < WORLD else []
    wrong = sorted(harms) + silent + (["timed out"] if late else [])
    return f"{wrong}: {observed}" if wrong else ""


def _harms(observed: list[Observed]) -> set[str]:
    """The rules whose harm was seen; "crash" for an exception that no rule speaks of."""
    harms = set()
    errors = " ".join(one.error for one in observed)
    if "mixed torch.Tensor and DTensor" in errors:
        harms.add("direct-forward")
    elif "no attribute 'no_sync'" in errors:
        harms.add("no-sync-under-fsdp2")
    elif any(said in errors for said in _NO_GRADIENT):
        harms.add("gradient-sync-left-off")
    elif errors.strip():
        harms.add("crash")
    if any(one.stale for one in observed):
        harms |= _STALE
    if any(1 in one.units for one in observed):
        harms.add("only-root-sharded")
    if any(_slices_lost(path, observed) for one in observed for path in one.saved):
        harms.update(("sharded-state-saved", "optimizer-state-saved-raw"))
    return harms


def _slices_lost(path: str, observed: list[Observed]) -> bool:
    """Not if every rank has a file of its own."""
    return "rank" not in path or not all(one.saved for one in observed)


def _observe(run: Run, folder: Path) -> tuple[list[Observed], bool]:
    count = WORLD if run.program.launch == "torchrun" else 1
    port = _free_port()
    pids = [_start(run, folder, rank, port) for rank in range(count)]
    late = not _wait(pids)
    reports = [json.loads(path.read_text()) for path in sorted(folder.glob("observed-*.json"))]
    return [Observed(**report) for report in reports], late


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def _start(run: Run, folder: Path, rank: int, port: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        _become(run, folder, rank, port)
    finally:
        os._exit(0)


def _become(run: Run, folder: Path, rank: int, port: int) -> None:
    """Run the program in this process, as the rank it is."""
    os.chdir(folder)
    sink = os.open("output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(sink, 1)
    os.dup2(sink, 2)
    if run.program.launch == "torchrun":
        world = str(WORLD)
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1")
        os.environ.update(WORLD_SIZE=world, LOCAL_WORLD_SIZE=world, MASTER_PORT=str(port))
    sys.argv = [run.program.entry, *run.args]
    sys.path.insert(0, str(folder))
    # A worker of a pool is a daemon, which may not start the ranks of `mp.spawn`.
    vars(multiprocessing.current_process())["_config"]["daemon"] = False
    observed = Observed()
    install(observed)
    try:
        runpy.run_path(run.program.entry, run_name="__main__")
    except BaseException as error:  # whatever ends a program is its result
        observed.error = f"{type(error).__name__}: {error}"[:300]
    if run.program.launch == "torchrun":
        observed.write()


def _wait(pids: list[int]) -> bool:
    """Wait for all, but not for peers of a rank that is gone for long; whether all ended."""
    deadline = time.monotonic() + TIMEOUT
    left = set(pids)
    while left and time.monotonic() < deadline:
        for pid in list(left):
            if os.waitpid(pid, os.WNOHANG)[0]:
                left.discard(pid)
                deadline = min(deadline, time.monotonic() + 10)
        time.sleep(0.02)
    for pid in left:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return not left


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--mutants", action="store_true", help="also run the mutants")
    parser.add_argument("--rule", default="", help="only mutants of the rules named like this")
    parser.add_argument("--program", default="", help="only programs named like this")
    parser.add_argument("--fixed", action="store_true", help="run the mutants after fsdplint --fix")
    args = parser.parse_args()
    torch.set_num_threads(1)
    mutants = args.mutants or args.fixed or bool(args.rule)
    todo = runs(args.seed, mutants, args.rule, args.program)
    if args.fixed:
        todo = [fixed for run in todo if run.rule and (fixed := repaired(run))]
    counts: Counter[tuple[str, bool]] = Counter()
    with multiprocessing.get_context("fork").Pool(args.jobs) as pool:
        for run, verdict in zip(todo, pool.imap(judge, todo), strict=True):
            counts[run.rule or "correct", not verdict] += 1
            if verdict:
                print(f"{run.name}\n    {verdict}", flush=True)
    for rule in sorted({rule for rule, _ in counts}):
        right, wrong = counts[rule, True], counts[rule, False]
        print(f"{rule:28} {right:4} as expected, {wrong:3} not")
    return 1 if counts["correct", False] else 0


if __name__ == "__main__":
    raise SystemExit(main())
