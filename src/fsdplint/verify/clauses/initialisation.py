"""Whether a model starts with initialized values, equal wherever there are replicas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fsdplint.verify.clauses.clause import clause, confirmed, not_exercised, violated
from fsdplint.verify.clauses.queries import (
    crashes,
    first_snapshots,
    is_replicated,
    listed,
    own_place,
    parameters,
    shards_held,
)
from fsdplint.verify.events import Initial, InitialValue
from fsdplint.verify.evidence import RankRun, Run
from fsdplint.verify.figures import plural, ranks_in_words
from fsdplint.verify.verdict import Verdict

_ON_META = "should be materialized from meta device"
"""FSDP2 at the first forward, for parameters without storage (torch 2.13)."""


@clause(
    "initialised",
    "Every parameter and buffer is initialized before the first step, and replicas start equal.",
    ("storage", "optimizer", "snapshot"),
)
def initialised(run: Run) -> Verdict:
    """Judge initial values: a reset that misses a module leaves what `to_empty` found in memory."""
    if refused := [ended for _, ended in crashes(run, _ON_META)]:
        return violated(
            "parameters are still on the meta device at the first forward",
            (f"{refused[0].kind}: {refused[0].message.splitlines()[0]}",),
            (own_place(refused[0]),),
        )
    initial = run.all(Initial)
    if not initial:
        return not_exercised("no sharded model reached an optimizer step or the end of the script")
    if missed := unwritten(run):
        return _unwritten(run, missed)
    if apart := unequal(run):
        return violated(
            f"replicas of {plural(len(apart), 'parameter')} differ between ranks before the first "
            f"step: {listed(apart)}"
        )
    empty = any(event.places for _, event in initial)
    copies = {copy.name for copy in _copies(run)}
    if not empty and not copies:
        return not_exercised("`to_empty` was never called, and there are no replicas")
    most = max(len(event.values) for _, event in initial)
    figures = [f"{most} parameters and buffers initialized after allocation"] * empty
    figures += [f"{plural(len(copies), 'replicated parameter')} equal at the start"] * bool(copies)
    return confirmed("; ".join(figures))


def unwritten(run: Run) -> dict[str, tuple[InitialValue, list[int]]]:
    """Return what is used uninitialized, by name: its worst state, and the ranks.

    A buffer that a forward fills in part, such as a cache, counts as initialized.
    """
    found: dict[str, tuple[InitialValue, list[int]]] = {}
    for rank, event in run.all(Initial):
        for value in event.values:
            least = value.elements if value.buffer else 1
            if value.elements and value.unwritten >= least:
                worst, ranks = found.get(value.name, (value, []))
                found[value.name] = max(worst, value, key=lambda v: v.unwritten), [*ranks, rank]
    return found


def _unwritten(run: Run, missed: dict[str, tuple[InitialValue, list[int]]]) -> Verdict:
    total = max(len({value.name for value in event.values}) for _, event in run.all(Initial))
    partly = [
        f"`{name}`: {value.unwritten} of {plural(value.elements, 'element')} uninitialized on "
        f"{ranks_in_words(ranks)}"
        for name, (value, ranks) in missed.items()
        if value.unwritten < value.elements or len(set(ranks)) < len(run.ranks)
    ]
    return violated(
        f"{len(missed)} of {plural(total, 'parameter and buffer', 'parameters and buffers')} "
        f"never initialized, so training starts from arbitrary memory: {listed(missed)}",
        tuple(partly[:_SHOWN]),
        tuple(place for _, event in run.all(Initial) for place in event.places),
    )


_SHOWN = 3


class _Copy(NamedTuple):
    """A shard of a model's parameter that several ranks hold."""

    model: int
    name: str
    part: tuple[int, ...]
    ranks: tuple[int, ...]


def unequal(run: Run) -> list[str]:
    """Return the names of the parameters whose replicas start with different values."""
    apart = (copy.name for copy, digests in _copies(run).items() if len(digests) > 1)
    return list(dict.fromkeys(apart))


def _copies(run: Run) -> dict[_Copy, set[str]]:
    found: dict[_Copy, set[str]] = {}
    for rank in run.ranks:
        for copy, digest in _of_rank(rank):
            found.setdefault(copy, set()).add(digest)
    return found


def _of_rank(rank: RankRun) -> Iterator[tuple[_Copy, str]]:
    held = {(s.model, p.name): p for s in first_snapshots(rank) for _, p in parameters(s)}
    for event in rank.of(Initial):
        for value in event.values:
            p = held.get((event.model, value.name))
            if p is not None and is_replicated(p):
                yield _Copy(event.model, p.name, shards_held(p), p.ranks), value.digest
