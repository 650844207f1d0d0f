"""What `kill -9` leaves of the files that `fsdplint check --fix` is writing.

A tree of files of several encodings and line ends, each with a fix, is fixed by a process that is
killed at a random moment, again and again until nothing is left to fix, and then from the start.
Most of such a run is analysis, so that then only the writing is begun and killed, more often. After
each kill every file must hold its old or its new bytes, whole, with its mode, and the kill may have
left one file that was being written beside them; after each last run there may be none.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from multiprocessing.context import ForkProcess
from pathlib import Path

import fsdplint.fixes.apply  # noqa: F401 - what takes time to import is there before the fork
from fsdplint.cli import main as cli
from fsdplint.files import writing
from fsdplint.files.file import SourceFile, load

IDLE = "  # fsdplint: ignore[direct-forward]"
MODE = 0o640
_LEFTOVER = ".fsdplint-*"
_PATIENCE = 120.0
_FOLDER = 50

Work = partial[None]


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
    left: frozenset[Path] = frozenset()
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


def kill_once(
    root: Path, tree: list[File], work: Work, delay: float, written: bool, tally: Tally
) -> None:
    """Starts to fix the tree, and kills that after ``delay`` seconds.

    Args:
        written: whether the seconds count from when a file is being written.
    """
    before = _fixed(tree)
    process = _started(work)
    deadline = time.monotonic() + _PATIENCE
    while written and process.is_alive() and time.monotonic() < deadline:
        if _fixed(tree) != before:
            break
        time.sleep(0.01)
    process.join(delay)
    process.kill()
    process.join()
    killed = process.exitcode == -signal.SIGKILL
    tally.killed += killed
    tally.finished += not killed
    if process.exitcode not in (0, -signal.SIGKILL):
        tally.faults.append(f"a run exits with {process.exitcode}")
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
    found = frozenset(path for path in root.rglob("*") if path.is_file())
    left = found - {file.path for file in tree}
    new, tally.left = left - tally.left, left
    tally.leftovers += len(new)
    tally.faults += [f"{path}: is not known" for path in new if not path.match(_LEFTOVER)]
    if len(new) > 1:
        tally.faults.append(f"{len(new)} files were left at once")


def finish(root: Path, tree: list[File], work: Work, tally: Tally) -> None:
    """Lets a run come to its end, after which every file is new and no other is there."""
    process = _started(work)
    process.join()
    if process.exitcode:
        tally.faults.append(f"the run after it exits with {process.exitcode}")
    tally.faults += [f"{f.path}: is not fixed" for f in tree if f.path.read_bytes() != f.new]
    tally.faults += [f"{path}: stays" for path in root.rglob(_LEFTOVER)]
    tally.left = frozenset()


def _started(work: Work) -> ForkProcess:
    """A process at work; forked, since it is not its start that is to be killed."""
    process = get_context("fork").Process(target=work)
    process.start()
    return process


def check_and_fix(root: Path) -> None:
    """The whole command, without what it prints."""
    with Path(os.devnull).open("w") as nowhere:
        sys.stdout = sys.stderr = nowhere
        cli.main(["check", "--isolated", "--fix", str(root)])


def write_all(changes: list[tuple[SourceFile, SourceFile]]) -> None:
    """What the command does last."""
    for before, after in changes:
        writing.write((before, after))


def _fixed(tree: list[File]) -> int:
    """How many files have another size than they began with."""
    return sum(f.path.exists() and f.path.stat().st_size != len(f.old) for f in tree)


def kill(root: Path, count: int, kills: int, seed: int, writes: int = 0) -> Tally:
    """Kills ``kills`` runs that fix ``count`` files in ``root``, and ``writes`` writings."""
    rng, tally = random.Random(seed), Tally()
    tree = files(root, count, rng)
    _kill(root, tree, partial(check_and_fix, root), kills, rng, tally, afresh=False)
    lay_out(tree)
    sources = [(load(file.path), file.new.decode(_encoding(file))) for file in tree]
    changes = [(source, source.edited(text.removeprefix("\ufeff"))) for source, text in sources]
    _kill(root, tree, partial(write_all, changes), kills + writes, rng, tally, afresh=True)
    return tally


def _kill(
    root: Path,
    tree: list[File],
    work: Work,
    kills: int,
    rng: random.Random,
    tally: Tally,
    afresh: bool,
) -> None:
    """Kills until so many were in all.

    Args:
        afresh: whether each begins with no file fixed, and not where the one before it was killed.
    """
    lay_out(tree)
    started = time.monotonic()
    finish(root, tree, work, tally)
    duration = time.monotonic() - started
    lay_out(tree)
    while tally.killed < kills and not tally.faults:
        # A run of the whole command begins to write late.
        written = rng.random() < 0.7
        delay = rng.random() ** 2 * duration / 2 if written else rng.random() * duration
        kill_once(root, tree, work, delay, written, tally)
        if _fixed(tree) == len(tree) or afresh:
            lay_out(tree)
    finish(root, tree, work, tally)


def _encoding(file: File) -> str:
    return "latin-1" if file.old.startswith(b"# coding: latin-1") else "utf-8"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=500)
    parser.add_argument("--kills", type=int, default=30, help="of the whole command")
    parser.add_argument("--writes", type=int, default=300, help="kills of the writing alone")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "tree"
        tally = kill(root, options.files, options.kills, options.seed, options.writes)
    print(f"{options.files} files, seed {options.seed}:")
    print(f"{tally.killed} runs killed, {tally.in_between} of them between two files,")
    print(f"{tally.leftovers} while a file was being written; {tally.finished} ended first.")
    print(f"Files looked at after them: {dict(tally.seen)}.")
    for fault in tally.faults:
        print(fault)
    return bool(tally.faults)


if __name__ == "__main__":
    sys.exit(main())
