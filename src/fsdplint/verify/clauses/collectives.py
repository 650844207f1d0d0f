"""Whether ranks use different devices, and issue the same collectives in the same order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from fsdplint.verify import order
from fsdplint.verify.clauses.clause import clause, confirmed, not_exercised, violated
from fsdplint.verify.clauses.queries import in_short
from fsdplint.verify.collective_log import BLOCKING, Collective
from fsdplint.verify.events import Device, ErrorHandled, GroupMade, Place, Sharded
from fsdplint.verify.evidence import RankRun, Run
from fsdplint.verify.figures import plural, ranks_in_words
from fsdplint.verify.order import Parting
from fsdplint.verify.verdict import CLEAN, Verdict

_DEPTH = 6
"""Lines of a stack that are shown."""


@clause(
    "device-per-rank",
    "Every rank joins the process group and uses its own device.",
    ("group",),
)
def device_per_rank(run: Run) -> Verdict:
    """Judge devices: two ranks on one GPU share its memory, and NCCL refuses them."""
    groups = run.all(GroupMade)
    if not groups:
        return not_exercised("no process group was created")
    strangers = [
        (rank, made)
        for rank, made in groups
        if (made.rank, made.world_size) != (rank, run.world_size)
    ]
    if strangers:
        rank, made = strangers[0]
        return violated(
            f"rank {rank} of {run.world_size} initializes the process group as rank {made.rank} of "
            f"{made.world_size}",
            (),
            (made.place,),
            "read the rank and the world size from the environment, where every launcher sets them",
        )
    by_device: dict[int, list[int]] = {}
    for rank, device in run.all(Device):
        if device.index is not None:
            by_device.setdefault(device.index, []).append(rank)
    shared = {index: ranks for index, ranks in by_device.items() if len(ranks) > 1}
    if shared:
        index, ranks = next(iter(shared.items()))
        return violated(
            f"{ranks_in_words(ranks)} all use cuda:{index}",
            ("they share its memory, and NCCL refuses two ranks on one GPU",),
            tuple(event.place for _, event in run.all(Sharded)),
        )
    known = {rank for rank, _ in run.all(Device)}
    if unknown := [rank.rank for rank in run.ranks if rank.rank not in known]:
        return not_exercised(f"the device of {ranks_in_words(unknown)} is unknown")
    backend = groups[0][1].backend
    devices = ", ".join(f"cuda:{index}" for index in sorted(by_device)) or "the CPU"
    return confirmed(f"{backend}, {plural(run.world_size, 'rank')} on {devices}")


@clause("collectives", "All ranks issue the same collectives in the same order.", ("collectives",))
def collectives(run: Run) -> Verdict:
    """Judge whether ranks diverge: they then hang, or different collectives pair up."""
    issued = {rank.rank: rank.collectives for rank in run.ranks}
    if len(run.ranks) < 2:
        return not_exercised("only one rank on this node, so there is nothing to compare")
    if not any(issued.values()):
        return not_exercised("no rank issued a collective")
    if at := order.parting(issued):
        return _parted(run, at)
    finished = {r.rank for r in run.ranks if r.ended and r.ended.how in CLEAN}
    if waiting := _stuck(run, finished):
        return _waiting(run, waiting)
    if len(finished) < len(run.ranks):
        return not_exercised(f"{_agreed(run)}; then the run ended early")
    if all(r.ended and r.ended.how == "script" for r in run.ranks):
        at = order.unmatched(issued)
        if at is not None:
            return _parted(run, at)
    return confirmed(_agreed(run), _by_group(run))


def _stuck(run: Run, finished: set[int]) -> dict[int, Collective]:
    """Return the ranks that hang.

    A rank that was ended after its steps might have reached the line that another one waits at, if
    it has before: ranks may differ in their steps, as where a scaler skips one.
    """
    issued = {rank.rank: rank.collectives for rank in run.ranks}
    queued = run.stall is not None and run.stall.certain
    waiting = order.stuck(issued, finished, queued)
    places = {collective.place for collective in waiting.values()}
    cut_short = {
        rank.rank
        for rank in run.ranks
        if rank.ended and rank.ended.how == "steps"
        if None in places or places & {collective.place for collective in rank.collectives}
    }
    return order.stuck(issued, finished - cut_short, queued)


def whereabouts(run: Run) -> tuple[str, ...]:
    """Return, for each rank that was stopped, the collective it was in, and its stack."""
    last = {r.rank: r.collectives[-1] for r in run.ranks if r.collectives and r.ended is None}
    inside = {rank: c for rank, c in last.items() if c.state in BLOCKING}
    lines = (f"rank {rank} waits in {_what(c)}{_at(c.place)}" for rank, c in inside.items())
    return (*lines, *_stacks(run))


def _parted(run: Run, at: Parting) -> Verdict:
    """Judge that ranks issued different collectives, or some of them none."""
    kinds = _kinds(at.issued)
    if at.absent:
        kinds["nothing"] = list(at.absent)
    figures = ", ".join(f"{what} on {ranks_in_words(ranks)}" for what, ranks in kinds.items())
    where = f"collective {at.number + 1} of {_group(run, at.group)}"
    hang = "; the run hangs" if run.stall and run.stall.certain else ""
    return _broken(run, f"ranks diverge at {where}: {figures}{hang}", at.issued)


def _waiting(run: Run, waiting: Mapping[int, Collective]) -> Verdict:
    """Judge that ranks wait for others, which have ended or wait elsewhere."""
    seconds = f"; no progress for {run.stall.seconds:.0f} s" if run.stall else ""
    kinds = _kinds(waiting).items()
    where = ", ".join(f"{ranks_in_words(ranks)} in {what}" for what, ranks in kinds)
    return _broken(run, f"hang: {where}{seconds}", waiting)


def _broken(run: Run, figures: str, issued: Mapping[int, Collective]) -> Verdict:
    lines = [_line(rank, issued.get(rank.rank)) for rank in run.ranks]
    return violated(figures, (*lines, *_stacks(run)), tuple(_odd_first(run, issued.values())))


def _kinds(issued: Mapping[int, Collective]) -> dict[str, list[int]]:
    """Return the ranks by what they issued."""
    kinds: dict[str, list[int]] = defaultdict(list)
    for rank, collective in issued.items():
        kinds[_what(collective)].append(rank)
    return kinds


def _odd_first(run: Run, candidates: Iterable[Collective]) -> list[Place]:
    """Order the lines: first those that the fewest ranks issued from, and of these the topmost,
    since ranks that skip a guarded line stop further down."""
    ranks: dict[Place, set[int]] = defaultdict(set)
    for rank in run.ranks:
        for collective in rank.collectives:
            if collective.place is not None:
                ranks[collective.place].add(rank.rank)
    places = {c.place for c in candidates if c.place is not None}
    return sorted(places, key=lambda p: (len(ranks[p]), p.path, p.line))


def _line(rank: RankRun, collective: Collective | None) -> str:
    """Describe what a rank did where others issued a collective."""
    if collective is not None:
        return f"rank {rank.rank}: {_what(collective)}{_at(collective.place)}"
    if rank.ended is not None:
        ended = (
            f"ended after {plural(rank.ended.steps, 'step')}"
            if rank.ended.how == "steps"
            else "finished the script"
        )
        return f"rank {rank.rank}: {ended} without this collective{_handled(rank)}"
    last = rank.collectives[-1] if rank.collectives else None
    if last is None:
        return f"rank {rank.rank}: issued no collective"
    return f"rank {rank.rank}: last issued {_what(last)}{_at(last.place)}"


def _handled(rank: RankRun) -> str:
    error = rank.first(ErrorHandled)
    if error is None:
        return ""
    where = f" at {error.place}" if error.place else ""
    return f", after {error.kind}{where}: {in_short(error.message)}"


def _what(collective: Collective) -> str:
    shape = f" [{', '.join(map(str, collective.shape))}]" if collective.size else ""
    return f"{collective.operation}{shape}"


def _at(place: Place | None) -> str:
    return "" if place is None else f" at {place} in {place.function}"


def _stacks(run: Run) -> list[str]:
    """Return each stopped rank's stack of user code: its innermost lines, outermost first."""
    stacks = run.stall.stacks if run.stall else {}
    return [
        f"stack of rank {rank}: {'... > ' if len(stack) > _DEPTH else ''}"
        f"{' > '.join(f'{p} in {p.function}' for p in reversed(stack[:_DEPTH]))}"
        for rank, stack in sorted(stacks.items())
        if stack
    ]


def _agreed(run: Run) -> str:
    """Describe how many collectives there were: in the last step, or in total without a step."""
    rank = run.ranks[0]
    steps = rank.ended.steps if rank.ended else 0
    seen = [c for c in rank.collectives if c.step == steps - 1] if steps else rank.collectives
    when = "in the last step" if steps else "in total"
    operations = Counter(c.operation for c in seen)
    kinds = ", ".join(f"{n} {name}" for name, n in sorted(operations.items()))
    return f"{len(run.ranks)} ranks agree; {plural(len(seen), 'collective')} {when}: {kinds}"


def _by_group(run: Run) -> tuple[str, ...]:
    """Return a line per process group, if there is more than the group of all ranks."""
    groups: dict[str, Counter[str]] = defaultdict(Counter)
    for rank in run.ranks:
        for collective in rank.collectives:
            if collective.members and rank.rank == min(collective.members):
                groups[collective.group][collective.operation] += 1
    lines = (
        f"{_group(run, group)}: {', '.join(f'{n} {name}' for name, n in sorted(counts.items()))}"
        for group, counts in groups.items()
    )
    return tuple(lines) if len(groups) > 1 else ()


def _group(run: Run, group: str) -> str:
    members = group.partition("/")[0]
    if not members or len(members.split(",")) == run.world_size:
        return "all ranks"
    return ranks_in_words([int(rank) for rank in members.split(",")])
