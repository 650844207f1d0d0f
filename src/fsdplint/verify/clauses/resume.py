"""Whether a run that resumes from a save continues where the first one stopped."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from fsdplint.verify.clauses.clause import confirmed, not_exercised, violated
from fsdplint.verify.clauses.queries import in_short
from fsdplint.verify.events import (
    Backward,
    Fed,
    Kept,
    ProbeFailed,
    Restored,
    Resumed,
    Save,
    Settings,
    Step,
)
from fsdplint.verify.evidence import RankRun, Run
from fsdplint.verify.figures import plural
from fsdplint.verify.verdict import Status, Verdict

NAME = "resume"
CONTRACT = "A resumed run continues with the saved parameters, optimizer state and settings."
Again = tuple[Run, list[Verdict]]
"""A resumed run, and the verdicts on clauses that it violates and the saving one does not."""
_CLOSE = 1e-4
"""Relative difference from which two losses count as different."""
_NEARLY_ALL = 0.8
_MOST = 5
"""Names of one kind that are listed."""
_PROBES = ("resume",)


def resume(saving: Run, again: list[Again]) -> Verdict:
    """Return the verdict on a run that saves and the runs that resumed from its save."""
    return replace(_found(saving, again), clause=NAME, contract=CONTRACT)


def _found(saving: Run, again: list[Again]) -> Verdict:
    if reason := _unread(saving):
        return not_exercised(reason)
    step = _kept(saving)
    saves = [save for _, save in saving.all(Save) if save.step == step and save.of_training]
    if step is None or not saves:
        return not_exercised("the run saved nothing after an optimizer step")
    outside = next((save.path for save in saves if save.path.startswith("/")), "")
    if outside:
        return not_exercised(f"`{outside}` is outside the working directory that verify copies")
    if [rank for rank in saving.ranks if step not in {kept.step for kept in rank.of(Kept)}]:
        return not_exercised("some ranks did not record their state at the save")
    found = [_judged(saving, run, broken) for run, broken in again]
    worst = max(found, key=lambda verdict: _RANKING.index(verdict.status))
    head = f"saved after {plural(step, 'step')} on {plural(saving.world_size, 'rank')}"
    same: dict[str, list[str]] = {}
    for (run, _), verdict in zip(again, found, strict=True):
        same.setdefault(verdict.figures, []).append(str(run.world_size))
    figures = [f"on {_counted(ranks)}: {figure}" for figure, ranks in same.items()]
    places = worst.places or tuple(dict.fromkeys(save.place for save in saves if save.place))
    details = tuple(dict.fromkeys(line for verdict in found for line in verdict.details))
    return replace(
        worst,
        figures=f"{head}; resumed {'; '.join(figures)}",
        details=details,
        places=places if worst.status is Status.VIOLATED else (),
    )


def _counted(ranks: list[str]) -> str:
    return f"{' and '.join(ranks)} rank{'s'[: ranks != ['1']]}"


_RANKING = (Status.CONFIRMED, Status.NOT_EXERCISED, Status.VIOLATED)


def _kept(saving: Run) -> int | None:
    """Return the step of the save that was resumed from."""
    found = {event.step for _, event in saving.all(Kept)}
    return max(found, default=None)


def _unread(run: Run) -> str:
    failed = next((p for _, p in run.all(ProbeFailed) if p.probe in _PROBES), None)
    return failed.error.removeprefix("Incomparable: ") if failed else ""


def _judged(saving: Run, run: Run, broken: list[Verdict]) -> Verdict:
    """Judge one resumed run, of which `broken` are the clauses that it alone violates."""
    if (end := _ended(saving, run)) is not None:
        return end
    if reason := _unread(run):
        return not_exercised(reason)
    restored = [event for _, event in run.all(Restored)]
    if not any(event.what == "parameter" for event in restored):
        return not_exercised("no step, and no model left at the end of the script")
    if _is_another_state(restored):
        return not_exercised(
            "nothing was restored; if the script needs arguments to resume, pass them with "
            "`--resume-args`"
        )
    if any(event.what == "parameter" and event.missing for event in restored):
        return not_exercised("the script builds different models")
    lost = [_loss(kind, restored) for kind in dict.fromkeys(event.what for event in restored)]
    lost.append(_set_otherwise(saving, run))
    details = tuple(_details(saving, run))
    lost += [f"`{verdict.clause}` is violated: {verdict.figures}" for verdict in broken]
    if any(lost):
        places = tuple(place for verdict in broken for place in verdict.places)
        why = [line for verdict in broken for line in verdict.details]
        return violated(", ".join(filter(None, lost)), (*_names(restored), *why, *details), places)
    counts = {event.what: event.count for event in restored}
    kinds = ", ".join(plural(count, what) for what, count in counts.items())
    return confirmed(f"{kinds} restored", details)


def _is_another_state(restored: list[Restored]) -> bool:
    """True if nearly all parameters and all optimizer states, if any, differ, as in a fresh start,
    where a few parameters may be equal."""
    for what, least in (("parameter", _NEARLY_ALL), ("optimizer state", 1.0)):
        found = [event for event in restored if event.what == what]
        if sum(e.apart + e.missing for e in found) < least * sum(e.count for e in found):
            return False
    return True


def _ended(saving: Run, run: Run) -> Verdict | None:
    """Describe how a resumed run ended, if it failed and the saving run did not."""
    stepped = bool(run.all(Step))
    if any(rank.ended is None or rank.ended.how == "crash" for rank in saving.ranks) and stepped:
        return None
    for rank in run.ranks:
        ended = rank.ended
        if ended is not None and ended.how == "exit" and not stepped:
            said = next(iter(reversed(rank.output.strip().splitlines())), "") or ended.message
            return not_exercised(f"the script exits with an error ({said}); check `--resume-args`")
        if ended is not None and ended.how == "crash":
            places = tuple(frame.place for frame in ended.frames if frame.own)[-1:]
            when = "after its first step" if stepped else "before its first step"
            said = f"fails {when} with {ended.kind}: {in_short(ended.message)}"
            return violated(said, (), places)
    if run.stall is not None and run.stall.certain:
        return violated("hangs")
    return None if stepped or run.stall is None else not_exercised("no step within the timeout")


def _loss(what: str, restored: list[Restored]) -> str:
    """Describe what of one kind is lost, on the rank that lost most."""
    worst = max(
        (event for event in restored if event.what == what), key=lambda e: e.missing + e.apart
    )
    parts = []
    if worst.missing:
        parts.append(f"{worst.missing} of {plural(worst.count, what)} missing")
    if worst.apart:
        off = "" if math.isinf(worst.difference) else f" (by up to {worst.difference:.2g})"
        parts.append(f"{worst.apart} of {plural(worst.count, what)} changed{off}")
    return ", ".join(parts)


def _set_otherwise(saving: Run, run: Run) -> str:
    """Describe the first number in an optimizer's groups that a step does not restore.

    Without the same data, a schedule may differ, so only the first step of each optimizer counts.
    """
    first, other = saving.ranks[0], run.ranks[0]
    begun = _steps_at(first, _kept(saving) or 0)
    wanted = {(e.optimizer, e.step - begun.get(e.optimizer, 0)): e for e in first.of(Settings)}
    same = run.world_size == saving.world_size and _goes_on(first, other, _kept(saving) or 0)
    for event in other.of(Settings):
        was = wanted.get((event.optimizer, event.step)) if same or not event.step else None
        values = {} if was is None else dict(zip(was.names, was.values, strict=True))
        for name, value in zip(event.names, event.values, strict=True):
            if name in values and not math.isclose(value, values[name], rel_tol=1e-6):
                return f"{name} is {value:g} at step {event.step + 1}, not {values[name]:g}"
    return ""


def _steps_at(rank: RankRun, step: int) -> dict[int, int]:
    """Return how many steps each optimizer had taken at the save after ``step`` steps."""
    done: dict[int, int] = {}
    for event in rank.events:
        if isinstance(event, Step):
            done[event.optimizer] = event.number
        kept = isinstance(event, Kept) and event.step == step
        if kept or (isinstance(event, Save) and event.of_training and event.step == step):
            break
    return done


def _goes_on(first: RankRun, other: RankRun, step: int) -> bool:
    """True if the first batch after the save equals the uninterrupted run's."""
    fed, again = first.of(Fed), other.of(Fed)
    following = next((one.digest for one in fed if one.step == step), None)
    return bool(again) and again[0].digest == following


def _names(restored: list[Restored]) -> Iterator[str]:
    """Yield lines with the names of what is lost, whichever rank lost it."""
    for what in dict.fromkeys(event.what for event in restored):
        events = [event for event in restored if event.what == what]
        for state, names, counts in (
            ("missing", [e.lost for e in events], [e.missing for e in events]),
            ("changed", [e.changed for e in events], [e.apart for e in events]),
        ):
            listed = list(dict.fromkeys(name for each in names for name in each))[:_MOST]
            if listed:
                more = max(0, max(counts) - len(listed))
                yield f"{state}: {', '.join(listed)}" + (f" and {more} more" if more else "")


def _details(saving: Run, run: Run) -> list[str]:
    """Return whether data and losses continue, and what was not compared."""
    lines = []
    unread = next((event.unread for _, event in run.all(Resumed) if event.unread), ())
    if unread:
        lines.append(f"not compared: {', '.join(unread)}")
    if run.world_size == saving.world_size:
        lines += _going_on(saving, run)
    return lines


def _going_on(saving: Run, run: Run) -> list[str]:
    """Compare the first batch and the losses, which need the same number of ranks."""
    first, other = saving.ranks[0], run.ranks[0]
    step = _kept(saving) or 0
    fed, again = first.of(Fed), other.of(Fed)
    lines = []
    if again and any(one.step == step for one in fed):
        if _goes_on(first, other, step):
            lines.append("the data continues where it stopped")
        elif fed[0].digest == again[0].digest:
            lines.append("the data starts over from the first batch")
        else:
            lines.append("the first batch differs from the uninterrupted run's")
    return lines + _random(fed, again, step) + _losses(first, other, step)


def _random(fed: list[Fed], again: list[Fed], step: int) -> list[str]:
    """Compare the random generators at the first forward after the save."""
    following = next((one.random for one in fed if one.step == step), None)
    if following is None or not again:
        return []
    if again[0].random == following:
        return ["random numbers continue where they stopped"]
    if again[0].random == fed[0].random:
        return ["random numbers start over"]
    return ["random numbers differ from the uninterrupted run's"]


def _losses(first: RankRun, other: RankRun, step: int) -> list[str]:
    wanted = [float(b.loss) for b in first.of(Backward) if b.step >= step]
    found = [float(b.loss) for b in other.of(Backward)]
    pairs = list(zip(wanted, found, strict=False))
    if not pairs:
        return []
    off = [abs(a - b) / (abs(a) or 1.0) for a, b in pairs]
    if max(off) <= _CLOSE:
        return [f"{plural(len(pairs), 'loss', 'losses')} equal to the uninterrupted run's"]
    number = next(n for n, each in enumerate(off) if each > _CLOSE)
    a, b = pairs[number]
    return [f"loss {number + 1} is {b:.6g}, but {a:.6g} in the uninterrupted run"]
