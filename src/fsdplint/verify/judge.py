"""From what a run left behind to its result."""

from __future__ import annotations

from collections import defaultdict

from fsdplint.verify.clauses import CLAUSES
from fsdplint.verify.clauses.collectives import whereabouts
from fsdplint.verify.clauses.models import first_snapshots
from fsdplint.verify.events import FAILED, Device, Memory, Sharded, Snapshot, Step
from fsdplint.verify.evidence import RankRun, Run
from fsdplint.verify.figures import plural, ranks_in_words
from fsdplint.verify.request import Request
from fsdplint.verify.verdict import RankSummary, Traffic, Verdict, Verification

_TAIL = 12


def judge(request: Request, run: Run, extra: tuple[Verdict, ...] = ()) -> Verification:
    """Judges every clause, and sums up what each rank did.

    Args:
        extra: verdicts that rest on more than this run.
    """
    verdicts = tuple(clause.judge(run) for clause in CLAUSES) + extra
    started = next((rank.started for rank in run.ranks if rank.started), None)
    return Verification(
        request.script,
        request.arguments,
        started.torch if started else "",
        _device(run),
        run.world_size,
        run.seconds,
        verdicts,
        tuple(_summary(run, rank) for rank in run.ranks),
        {rank.rank: tuple(first_snapshots(rank)) for rank in run.ranks},
        _notes(run),
        _failure(run),
    )


def _device(run: Run) -> str:
    started = next((rank.started for rank in run.ranks if rank.started), None)
    if started is None:
        return ""
    return f"{started.device} (CUDA mapped to it)" if started.shimmed else started.device


def _summary(run: Run, rank: RankRun) -> RankSummary:
    ended, device = rank.ended, rank.first(Device)
    how = ended.how if ended else "stuck" if run.stall else "died"
    index = f" (cuda:{device.index})" if device and device.index is not None else ""
    return RankSummary(
        rank.rank,
        how,
        ended.traceback if ended else "",
        ended.steps if ended else max((s.number for s in rank.of(Step)), default=0),
        f"{'/'.join(sorted({d for s in rank.of(Snapshot) for d in s.devices})) or 'cpu'}{index}"
        if device
        else "",
        rank.first(Memory),
        _traffic(rank),
        "\n".join(rank.output.splitlines()[-_TAIL:]),
    )


def _traffic(rank: RankRun) -> tuple[Traffic, ...]:
    calls: dict[str, int] = defaultdict(int)
    sizes: dict[str, int] = defaultdict(int)
    for collective in rank.collectives:
        calls[collective.operation] += 1
        sizes[collective.operation] += collective.size
    return tuple(Traffic(name, calls[name], sizes[name]) for name in sorted(calls))


def _notes(run: Run) -> tuple[str, ...]:
    started = next((rank.started for rank in run.ranks if rank.started), None)
    away = run.world_size - started.local_world_size if started else 0
    return (f"{away} of {plural(run.world_size, 'rank')} ran on other nodes",) if away else ()


def _failure(run: Run) -> str:
    """Says why the script did not come to its end, in the words of the rank that failed first:
    a rank that died takes others with it, whose errors are of the connection it held."""
    dead = [rank for rank in run.ranks if rank.ended is None]
    if run.stall is None and (dead or not run.ranks):
        who = f"rank {dead[0].rank} died\n{dead[0].output}" if dead else "no rank began"
        return f"{who}\n{run.launcher}".strip()
    crashed = [
        (rank.rank, rank.ended) for rank in run.ranks if rank.ended and rank.ended.how in FAILED
    ]
    if crashed:
        rank, ended = crashed[0]
        if ended.how == "unmappable":
            return ended.message
        return f"rank {rank} ended with {ended.kind}: {ended.message}\n{ended.traceback}".strip()
    if run.stall is not None:
        quiet = f"no progress for {run.stall.seconds:.0f} s"
        done = [rank.rank for rank in run.ranks if rank.ended and rank.ended.how == "steps"]
        if done:
            quiet += f"; {ranks_in_words(done)} had taken the steps asked for, the others had not"
        return "\n".join((f"stopped after {run.seconds:.0f} s, {quiet}", *whereabouts(run)))
    if not run.all(Sharded):
        return "nothing to verify: no module became an FSDP unit on any rank"
    return ""
