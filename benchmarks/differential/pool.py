"""Judges programs side by side, in processes that have torch loaded."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from benchmarks.differential.judge import Task, Verdict, judge


def judged(tasks: Sequence[Task], jobs: int) -> Iterator[list[Verdict]]:
    """Yield the verdicts of each program, in the order in which they are done."""
    with judges(jobs) as pool:
        for done in as_completed([pool.submit(judge, task) for task in tasks]):
            yield done.result()


def judges(jobs: int) -> ProcessPoolExecutor:
    """Return processes that can run `judge`."""
    # Fresh interpreters: a fork of this process might have threads, or torch patched.
    return ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _prepare)


def _prepare() -> None:
    from benchmarks.differential.rank import prepare

    prepare()
