"""Compares two runs: the same program before and after a fix."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from benchmarks.differential.record import ENDED, Rank, Run

SAME = "same"
CURED = "cured"
ALLOWED = "allowed"
FAILS_ALIKE = "fails alike"
OTHERWISE = "fails otherwise"
HARMED = "harmed"
UNSTABLE = "unstable"
TOO_SLOW = "too slow"
IDLE = "does nothing"
VERDICTS = (SAME, ALLOWED, CURED, OTHERWISE, FAILS_ALIKE, IDLE, UNSTABLE, TOO_SLOW, HARMED)
TELLING = frozenset({SAME, ALLOWED, CURED, OTHERWISE, HARMED})
"""The verdicts of runs from which something can be learnt about a fix."""

_TOLERANCE = 1e-4
_NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?|nan|inf")
_HELP = "help"
_UNBOUND = ("NameError", "UnboundLocalError", "ImportError", "ModuleNotFoundError")

Moved = Callable[[str, int], tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Change:
    """What a rule's fix may change, apart from curing a failure.

    Attributes:
        facts: one of them must be so in the run before the fix, for anything to change.
        reason: why numbers are others then.
        late: nothing may change up to the first backward.
        more: the run may do more than before: it trains where it was told that it is no rank.
    """

    facts: frozenset[str]
    reason: str
    late: bool = False
    more: bool = False


def _may(reason: str, *facts: str, late: bool = False, more: bool = False) -> Change:
    return Change(frozenset(facts), reason, late, more)


MAY_CHANGE: Mapping[str, Change] = {
    "clip-grad-util-on-fsdp1": _may(
        "all ranks clip by the norm of the whole gradient", "sharded", late=True
    ),
    "epoch-not-set": _may("each epoch has another order", "shuffled"),
    "grad-scaler-on-fsdp1": _may("all ranks skip a step together", "sharded", late=True),
    "local-rank-argument": _may(
        "the local rank comes from torchrun, and help names the option's other spelling",
        "launched",
        _HELP,
        more=True,
    ),
}
"""What is not here may change nothing in a run that succeeds."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, with what differs in a few lines."""

    verdict: str
    details: tuple[str, ...] = ()


def compare(
    rules: Sequence[str], before: Run, after: Run, facts: frozenset[str], moved: Moved
) -> Judgement:
    """Judge what the fixes of some rules did to one run.

    Args:
        facts: what is so in this configuration, besides what the run itself has noted.
        moved: the fixed program's line for a file and line of the program before.
    """
    if before.slow or after.slow:
        return Judgement(TOO_SLOW)
    if before.ok and after.ok:
        return _both_ended(rules, before, after, facts | before.facts)
    if after.ok:
        return Judgement(CURED, (f"before: {before.failure()}",))
    if before.ok:
        return Judgement(HARMED, (f"ran before, now: {after.failure()}", *_places(after)))
    return _both_failed(before, after, moved)


def _both_ended(rules: Sequence[str], before: Run, after: Run, facts: frozenset[str]) -> Judgement:
    details = tuple(differences(before, after))
    if not details:
        return Judgement(SAME if any(_progress(before)) or before.files else IDLE)
    known = [MAY_CHANGE[rule] for rule in rules if rule in MAY_CHANGE]
    allowed = [each for each in known if each.facts & facts]
    if not allowed:
        return Judgement(HARMED, details)
    more = any(each.more for each in allowed) and _progress(before) < _progress(after)
    other = _shape(before) != _shape(after) and not more
    if other or (all(each.late for each in allowed) and _differ_early(before, after)):
        return Judgement(HARMED, details)
    return Judgement(ALLOWED, (*(each.reason for each in allowed), *details))


def _differ_early(before: Run, after: Run) -> bool:
    """Whether something differs before the first backward."""
    pairs = list(zip(before.ranks, after.ranks, strict=True))
    lines = [(a.lines[: a.early], b.lines[: a.early]) for a, b in pairs]
    return not all(_all_close(a.losses[:1], b.losses[:1], _close) for a, b in pairs) or not all(
        _all_close(old, new, _close_texts) for old, new in lines
    )


def _both_failed(before: Run, after: Run, moved: Moved) -> Judgement:
    old, new = before.failure(), after.failure()
    if _close_texts(old, new):
        return Judgement(FAILS_ALIKE, (old,))
    details = (f"before: {old}", *_places(before), f"after: {new}", *_places(after))
    return Judgement(OTHERWISE if _got_as_far(before, after, moved) else HARMED, details)


def _got_as_far(before: Run, after: Run, moved: Moved) -> bool:
    """Whether the run after the fix did all that the one before did: another fault stops it."""
    did, does = _progress(before), _progress(after)
    if did != does:
        return did < does
    # The outermost calls come first: a function's line says nothing of when it is called.
    lines = [[moved(*place[:2]) for place in rank.stack] for rank in before.ranks if rank.stack]
    now = [[place[:2] for place in rank.stack] for rank in after.ranks if rank.stack]
    # A name that the fix lost, unless names were lacking before.
    old, new = before.failure(), after.failure()
    bound = any(name in new and name not in old for name in _UNBOUND)
    if bound or not (lines and now):
        return False
    # In one statement, a call of an argument's fails before the call that gets it.
    first, reached = min(lines), min(now)
    return reached >= first[: len(reached)]


def _progress(run: Run) -> tuple[int, int, int]:
    steps = sum(len(rank.steps) for rank in run.ranks)
    losses = sum(len(rank.losses) for rank in run.ranks)
    return steps, losses, sum(len(rank.lines) for rank in run.ranks)


def _places(run: Run) -> Iterator[str]:
    for number, rank in enumerate(run.ranks):
        if rank.stack:
            path, line, function = rank.stack[-1]
            yield f"  rank {number} at {path}:{line} in {function}"


def _shape(run: Run) -> object:
    """Return what must stay even where numbers may change."""
    ranks = [(len(r.lines), len(r.steps), len(r.losses), r.status) for r in run.ranks]
    return ranks, sorted(run.files)


def differences(before: Run, after: Run) -> Iterator[str]:
    """Yield what two runs do differently, a line for each kind."""
    for number, (old, new) in enumerate(zip(before.ranks, after.ranks, strict=True)):
        yield from (f"rank {number}: {what}" for what in _rank_differences(old, new))
    if before.files != after.files:
        names = {**before.files, **after.files}
        changed = sorted(n for n in names if before.files.get(n) != after.files.get(n))
        yield f"other files: {', '.join(changed)}"


def _rank_differences(old: Rank, new: Rank) -> Iterator[str]:
    if old.status != new.status or old.status != ENDED:
        yield f"{old.status} {old.error} / {new.status} {new.error}"
    if not _all_close(old.lines, new.lines, _close_texts):
        changes = [
            line
            for line in difflib.ndiff(old.lines, new.lines)
            if line.startswith(("- ", "+ ")) and line.strip()
        ]
        yield "prints " + " ".join(changes[:4])
    if not _all_close(old.losses, new.losses, _close):
        yield f"losses {_first(old.losses, new.losses)}"
    if len(old.steps) != len(new.steps):
        yield f"{len(old.steps)} optimizer steps / {len(new.steps)}"
    for step, (was, is_) in enumerate(zip(old.steps, new.steps, strict=False)):
        if not _all_close(was, is_, _close_summaries):
            yield f"parameters after step {step + 1}"
            break


T = TypeVar("T")


def _all_close(old: Sequence[T], new: Sequence[T], close: Callable[[T, T], bool]) -> bool:
    return len(old) == len(new) and all(map(close, old, new))


def _first(old: Sequence[float], new: Sequence[float]) -> str:
    if len(old) != len(new):
        return f"{len(old)} values / {len(new)}"
    index = next(i for i, (a, b) in enumerate(zip(old, new, strict=True)) if not _close(a, b))
    return f"{old[index]:.6g} / {new[index]:.6g} in backward {index + 1}"


def _close(old: float, new: float, scale: float = 0.0) -> bool:
    if old != old or new != new:
        return old != old and new != new
    return old == new or abs(old - new) <= _TOLERANCE * max(abs(old), abs(new), scale) + 1e-9


def _close_summaries(old: tuple[str, float, float], new: tuple[str, float, float]) -> bool:
    same = old[0] == new[0]
    return same or (_close(old[1], new[1], max(old[2], new[2])) and _close(old[2], new[2]))


def _close_texts(old: str, new: str) -> bool:
    if old == new:
        return True
    if _NUMBER.sub("#", old) != _NUMBER.sub("#", new):
        return False
    pairs = zip(_NUMBER.findall(old), _NUMBER.findall(new), strict=True)
    return all(_close(float(a), float(b), 1.0) for a, b in pairs)
