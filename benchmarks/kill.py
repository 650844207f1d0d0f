"""What `kill -9` leaves of the files that `fsdplint check --fix` is writing.

A tree of files of several encodings and line ends, each with a fix, is fixed by a process that is
killed at a random moment, again and again until nothing is left to fix, and then from the start.
After each kill every file must hold its old or its new bytes, whole, with its mode, and beside them
there may be no more than what was being written; after each last run there may be nothing.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.context import ForkProcess
from pathlib import Path

import fsdplint.fixing  # noqa: F401 - what takes time to import is there before the fork
from fsdplint import cli

IDLE = "  # fsdplint: ignore[direct-forward]"
MODE = 0o640
_LEFTOVER = ".fsdplint-*"
_PATIENCE = 120.0
_FOLDER = 50


@dataclass(frozen=True, slots=True)
class File:
    """A file of the tree, before and after its fix."""

    path: Path
    old: bytes
    new: bytes


@dataclass(slots=True)
class Tally:
    """What became of the runs, and what was wrong with files, which should be nothing."""

    killed: int = 0
    in_between: int = 0
    finished: int = 0
    leftovers: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)


def files(root: Path, count: int, rng: random.Random) -> list[File]:
    """The files of a tree in ``root``, of which none is written yet."""
    return [_file(root / f"p{n // _FOLDER}" / f"f{n}.py", n, rng) for n in range(count)]


def _file(path: Path, number: int, rng: random.Random) -> File:
    newline = ("\n", "\r\n")[number % 2]
    encoding = "latin-1" if number % 5 == 0 else "utf-8"
    lines = [f"# coding: {encoding}", f"x = 'é' * {number}{IDLE}"]
    # Comments, of which parsing takes less time than writing does.
    lines += [f"# {rng.random()}" for _ in range(3000 if number % _FOLDER == 9 else 2)]
    text = newline.join([*lines, ""])
    bom = b"\xef\xbb\xbf" if number % 7 == 0 and encoding == "utf-8" else b""
    old, new = (bom + each.encode(encoding) for each in (text, text.replace(IDLE, "")))
    return File(path, old, new)


def lay_out(tree: list[File]) -> None:
    """Writes every file as it is before its fix."""
    for file in tree:
        file.path.parent.mkdir(parents=True, exist_ok=True)
        file.path.write_bytes(file.old)
        file.path.chmod(MODE)


def kill_once(root: Path, tree: list[File], delay: float, written: bool, tally: Tally) -> None:
    """Starts to fix the tree, and kills that after ``delay`` seconds.

    Args:
        written: whether the seconds count from when a file is being written.
    """
    before = _fixed(tree)
    process = _started(root)
    deadline = time.monotonic() + _PATIENCE
    while written and process.is_alive() and time.monotonic() < deadline:
        if _fixed(tree) != before or any(root.glob(f"*/{_LEFTOVER}")):
            break
        time.sleep(0.005)
    process.join(delay)
    process.kill()
    process.join()
    killed = process.exitcode == -signal.SIGKILL
    tally.killed += killed
    tally.finished += not killed
    tally.in_between += killed and before < _fixed(tree) < len(tree)
    judge(root, tree, tally)


def judge(root: Path, tree: list[File], tally: Tally) -> None:
    """Notes what is wrong with the tree."""
    for file in tree:
        data = file.path.read_bytes() if file.path.exists() else b""
        state = "old" if data == file.old else "new" if data == file.new else "torn"
        tally.seen[state] += 1
        if state == "torn":
            tally.faults.append(f"{file.path}: {'torn' if data else 'lost'}")
        elif file.path.stat().st_mode & 0o777 != MODE:
            tally.faults.append(f"{file.path}: has another mode")
    left = {path for path in root.rglob("*") if path.is_file()} - {file.path for file in tree}
    tally.leftovers += len(left)
    tally.faults += [f"{path}: is not known" for path in left if not path.match(_LEFTOVER)]
    if len(left) > 1:
        tally.faults.append(f"{len(left)} files were left at once")


def finish(root: Path, tree: list[File], tally: Tally) -> None:
    """Lets a run come to its end, after which every file is new and no other is there."""
    process = _started(root)
    process.join()
    if process.exitcode:
        tally.faults.append(f"the run after it exits with {process.exitcode}")
    tally.faults += [f"{f.path}: is not fixed" for f in tree if f.path.read_bytes() != f.new]
    if any(root.rglob(_LEFTOVER)) and _fixed(tree) != len(tree):
        tally.faults.append("a leftover stays")


def _started(root: Path) -> ForkProcess:
    """A process that fixes the tree; forked, since it is not its start that is to be killed."""
    process = get_context("fork").Process(target=_fix, args=(root,))
    process.start()
    return process


def _fix(root: Path) -> None:
    with Path(os.devnull).open("w") as nowhere:
        sys.stdout = sys.stderr = nowhere
        cli.main(["check", "--isolated", "--fix", str(root)])


def _fixed(tree: list[File]) -> int:
    """How many files have another size than they began with."""
    return sum(f.path.exists() and f.path.stat().st_size != len(f.old) for f in tree)


def kill(root: Path, count: int, kills: int, seed: int) -> Tally:
    """Kills ``kills`` runs that fix a tree of ``count`` files in ``root``."""
    rng, tally = random.Random(seed), Tally()
    tree = files(root, count, rng)
    lay_out(tree)
    started = time.monotonic()
    finish(root, tree, tally)
    duration = time.monotonic() - started
    lay_out(tree)
    while tally.killed < kills and not tally.faults:
        # Most of a run is spent reading; what matters is the time after it.
        written = rng.random() < 0.8
        delay = rng.random() ** 3 * duration / 2 if written else rng.random() * duration
        kill_once(root, tree, delay, written, tally)
        if _fixed(tree) == len(tree):
            finish(root, tree, tally)
            shutil.rmtree(root)
            lay_out(tree)
    finish(root, tree, tally)
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "tree"
        tally = kill(root, options.files, options.kills, options.seed)
    print(f"{options.files} files, seed {options.seed}:")
    print(f"{tally.killed} runs killed, {tally.in_between} of them between two files,")
    print(f"{tally.leftovers} while a file was being written; {tally.finished} ended first.")
    print(f"Files looked at after them: {dict(tally.seen)}.")
    for fault in tally.faults:
        print(fault)
    return bool(tally.faults)


if __name__ == "__main__":
    sys.exit(main())
