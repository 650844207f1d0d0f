"""Judge what a run left behind.

Of the ranks that failed, the one that failed first leads: it may have caused the others' errors.
"""

from __future__ import annotations

import math
import signal
from collections import defaultdict

from fsdplint.verify.clauses import CLAUSES
from fsdplint.verify.clauses.collectives import whereabouts
from fsdplint.verify.clauses.queries import LOST, first_snapshots
from fsdplint.verify.events import (
    FAILED,
    Backward,
    Device,
    Forward,
    Memory,
    OptimizerBuilt,
    Options,
    ProbeFailed,
    ProcessStarted,
    Save,
    Sharded,
    Shrunk,
    Snapshot,
    Step,
)
from fsdplint.verify.evidence import RankRun, Run, Stall
from fsdplint.verify.figures import count, plural, ranks_in_words
from fsdplint.verify.processes import Death, death_sentence
from fsdplint.verify.request import Request
from fsdplint.verify.verdict import RankSummary, Traffic, Verdict, Verification

_NOTICED = 0.25
"""Seconds within which a launcher notices that a process is gone."""
_ENDS = (-signal.SIGTERM, -signal.SIGKILL)
"""How torchrun ends the remaining ranks once one has failed."""
_TAIL = 12
_MOST_OPTIONS = 6
_ESSENTIAL = {
    "sharding": "the sharding",
    "snapshot": "the parameters",
    "optimizer": "the parameters at the optimizer's step",
    "step": "the effect of a step",
}
"""The probes without which a run proves nothing, and what each looks at."""


def failures(run: Run) -> list[RankRun]:
    """Return the ranks that failed on their own, in the order of their failures: ranks with their
    own error come before ranks that lost a connection, and ranks with the same error keep their
    order."""
    failed = [rank for rank in run.ranks if _failed(run, rank)]
    earliest: dict[object, tuple[bool, float]] = {}
    for rank in failed:
        earliest[_error(rank)] = min(_order(rank), earliest.get(_error(rank), _order(rank)))
    return sorted(failed, key=lambda rank: earliest[_error(rank)])


def _error(rank: RankRun) -> object:
    if rank.ended is not None:
        return rank.ended.kind, rank.ended.message
    return rank.death and rank.death.status


def stopped(run: Run, rank: RankRun) -> bool:
    """True if the launcher ended the rank because another rank had failed."""
    if rank.death is None or rank.death.status not in _ENDS:
        return False
    others = (other.death for other in run.ranks if other is not rank)
    return any(death and _is_cause(death, rank.death) for death in others)


def _is_cause(one: Death, other: Death) -> bool:
    return one.status != 0 and one.time < other.time


def _failed(run: Run, rank: RankRun) -> bool:
    if rank.ended is not None:
        return rank.ended.how in FAILED
    if rank.death is None:  # stopped by verify, or its launcher is gone
        return run.stall is None
    return not stopped(run, rank)


def _order(rank: RankRun) -> tuple[bool, float]:
    if rank.ended is not None:
        return _is_lost(rank.ended.traceback), rank.ended.time
    if rank.death is None:
        return True, math.inf
    # A connection that is lost may abort the process.
    aborted = rank.death.status == -signal.SIGABRT and _is_lost(rank.output)
    return aborted, rank.death.time - _NOTICED


def _is_lost(text: str) -> bool:
    return any(message in text for message in LOST)


def judge(request: Request, run: Run, extra: tuple[Verdict, ...] = ()) -> Verification:
    """Judge every clause, and sum up what each rank did.

    Args:
        extra: verdicts that depend on more than this run.
    """
    verdicts = judged(run) + extra
    if request.clauses:
        verdicts = tuple(v for v in verdicts if v.clause in request.clauses)
    failed = failures(run)
    return Verification(
        request.script,
        request.arguments,
        run.started.torch if run.started else "",
        _device(run),
        run.world_size,
        run.seconds,
        verdicts,
        tuple(_summary(run, rank) for rank in run.ranks),
        {rank.rank: tuple(first_snapshots(rank)) for rank in run.ranks},
        _notes(request, run),
        _failure(request, run, failed),
        tuple(rank.rank for rank in failed),
    )


def judged(run: Run) -> tuple[Verdict, ...]:
    """Return the verdict of each clause on one run."""
    return tuple(clause.judge(run) for clause in CLAUSES)


def _device(run: Run) -> str:
    if run.started is None:
        return ""
    return f"{run.started.device}{' (CUDA mapped to CPU)' * run.started.shimmed}"


def _summary(run: Run, rank: RankRun) -> RankSummary:
    """Sum up one rank: how it ended, where it worked, and what it sent."""
    ended, device = rank.ended, rank.first(Device)
    how = _how(run, rank)
    index = f" (cuda:{device.index})" if device and device.index is not None else ""
    return RankSummary(
        rank.rank,
        how,
        ended.traceback if ended else _last_words(rank) if how == "died" else "",
        ended.steps if ended else max((s.number for s in rank.of(Step)), default=0),
        f"{'/'.join(sorted({d for s in rank.of(Snapshot) for d in s.devices})) or 'cpu'}{index}"
        if device
        else "",
        rank.first(Memory),
        _traffic(rank),
        _printed(rank),
        rank.death.status if rank.death and how == "died" else None,
    )


def _how(run: Run, rank: RankRun) -> str:
    if rank.ended:
        return rank.ended.how
    if rank.death is None:
        return _stopped_how(run.stall, rank.rank) if run.stall else "died"
    return "stopped" if stopped(run, rank) else "died"


def _stopped_how(stall: Stall, rank: int) -> str:
    if rank in stall.working:
        return "working"
    return "waiting" if stall.working else "stuck"


def _last_words(rank: RankRun) -> str:
    """Return what is known of a death: the stack, else the end of what the rank printed."""
    return rank.fatal or _printed(rank)


def _printed(rank: RankRun) -> str:
    return "\n".join(rank.output.splitlines()[-_TAIL:])


def _cause(run: Run, rank: RankRun) -> str:
    ended = rank.ended
    if ended is None:
        said = death_sentence([rank.rank], rank.death.status if rank.death else None)
        return "\n".join(filter(None, (said, _last_words(rank), run.launcher))).strip()
    if ended.how == "unmappable":
        return ended.message
    return f"rank {rank.rank} failed with {ended.kind}: {ended.message}\n{ended.traceback}".strip()


def _traffic(rank: RankRun) -> tuple[Traffic, ...]:
    calls: dict[str, int] = defaultdict(int)
    sizes: dict[str, int] = defaultdict(int)
    for collective in rank.collectives:
        calls[collective.operation] += 1
        sizes[collective.operation] += collective.size
    return tuple(Traffic(name, calls[name], sizes[name]) for name in sorted(calls))


def _notes(request: Request, run: Run) -> tuple[str, ...]:
    away = run.world_size - run.started.local_world_size if run.started else 0
    nodes = (f"{away} of {plural(run.world_size, 'rank')} ran on other nodes",) if away else ()
    shrunk = dict.fromkeys(event for _, event in run.all(Shrunk))
    if request.shrink and run.started and not shrunk:
        return (*nodes, "`--shrink` found no configuration to change")
    return (*nodes, *map(_shrunk, shrunk))


def _shrunk(event: Shrunk) -> str:
    fields = zip(event.names, event.before, event.after, strict=True)
    changes = ", ".join(f"{name} {after} (was {before})" for name, before, after in fields)
    return f"`--shrink` changed `{event.cls}`: {changes}"


def _failure(request: Request, run: Run, failed: list[RankRun]) -> str:
    """Describe why the script did not finish, by the rank that failed first."""
    if not run.ranks and run.stall is None:
        return f"no rank started\n{run.launcher}".strip()
    if failed:
        return _cause(run, failed[0])
    if run.stall is not None and run.stall.working:
        return "\n".join((_too_slow(request, run, run.stall.working), *whereabouts(run)))
    if run.stall is not None:
        quiet = f"no progress for {run.stall.seconds:.0f} s"
        done = [rank.rank for rank in run.ranks if rank.ended and rank.ended.how == "steps"]
        if done:
            quiet += f"; {ranks_in_words(done)} had reached the step limit, the other ranks had not"
        quiet += _elsewhere(run)
        return "\n".join((f"stopped after {run.seconds:.0f} s: {quiet}", *whereabouts(run)))
    return _unseen(run)


def _too_slow(request: Request, run: Run, working: tuple[int, ...]) -> str:
    """Describe how far the ranks came that were still running at the timeout."""
    steps = min((len(rank.of(Step)) for rank in run.ranks), default=0)
    spent = [step.seconds for _, step in run.all(Step)]
    pace = f" of {sum(spent) / len(spent):.1f} s each" if spent else ""
    return (
        f"timed out after {run.seconds:.0f} s while {ranks_in_words(working)} "
        f"{'was' if len(working) == 1 else 'were'} still running, after {plural(steps, 'step')}"
        f"{pace}; raise `--timeout` or lower `--steps`"
        f"{'' if request.shrink else ', or use `--shrink` for a smaller model'}{_sizes(run)}"
        f"{_elsewhere(run)}"
    )


def _sizes(run: Run) -> str:
    """Return the size of the largest sharded module and the script's size options."""
    elements = max((event.total for _, event in run.all(Sharded)), default=0)
    size = f"; the largest sharded module has {count(elements)} elements" * bool(elements)
    given = dict(
        pair
        for _, event in run.all(Options)
        for pair in zip(event.names, event.values, strict=True)
    )
    named = ", ".join(f"`{name}` ({value})" for name, value in list(given.items())[:_MOST_OPTIONS])
    return size + f"; script options that set sizes: {named}" * bool(named)


def _elsewhere(run: Run) -> str:
    """Name a function that the script runs in its own processes."""
    started = next((event for _, event in run.all(ProcessStarted)), None)
    if started is None or run.all(Sharded):
        return ""
    return (
        f"; verify cannot observe the processes that the script starts at {started.place} for "
        f"`{started.function}`; run it on a script that calls `{started.function}` on each rank"
    )


def _unseen(run: Run) -> str:
    """Describe why a run proves nothing although its ranks ended well."""
    if not run.all(Sharded):
        return f"nothing to verify: no module became an FSDP unit on any rank{_elsewhere(run)}"
    failed = next((p for _, p in run.all(ProbeFailed) if p.probe in _ESSENTIAL), None)
    if failed is not None:
        return f"{_ESSENTIAL[failed.probe]} could not be observed: {failed.error}"
    if not any(unit.parameters for _, s in run.all(Snapshot) for unit in s.units):
        return "nothing to verify: no parameter of an FSDP unit was seen"
    if run.all(Step):
        return ""
    if run.all(Backward) and any(event.live for _, event in run.all(OptimizerBuilt)):
        return "nothing to verify: backward ran, but no optimizer stepped"
    if not run.all(Forward) and not run.all(Save):
        return "nothing to verify: the script ended before a forward, an optimizer step or a save"
    return ""
