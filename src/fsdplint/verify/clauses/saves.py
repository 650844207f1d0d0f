"""Whether the files that a script writes hold the whole model, every rank's shards, or less.

Writes that belong together, such as the files of all ranks at one line, are a pool and are judged
as one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

from fsdplint.verify.clauses.clause import clause, confirmed, not_exercised, violated
from fsdplint.verify.clauses.queries import SHOWN, listed
from fsdplint.verify.events import Part, Place, Save
from fsdplint.verify.evidence import RankRun, Run
from fsdplint.verify.figures import plural, ranks_in_words
from fsdplint.verify.verdict import CLEAN, Verdict

Write = tuple[int, Save]
"""A rank and what it wrote."""
Cut = tuple[tuple[int, ...], tuple[int, ...]]
"""Who hold tensors together, and into how many parts they are cut."""


Amount = tuple[int, int]
"""Elements held, of elements in all."""


@dataclass
class Tally:
    """What is held of one state.

    Attributes:
        cuts: per way of cutting, position and rank: the elements held, and of how many in all.
        elements: in entries that are whole.
        names: parameters of the model, `missing` those that nothing is held of.
    """

    cuts: dict[Cut, dict[tuple[int, ...], dict[int, Amount]]] = field(default_factory=dict)
    elements: int = 0
    odd: int = 0
    names: int = 0
    missing: frozenset[str] | None = None

    def add(self, rank: int, part: Part) -> None:
        """Add a rank's slices."""
        by_rank = self.cuts.setdefault((part.ranks, part.of), {}).setdefault(part.position, {})
        elements, whole = by_rank.get(rank, (0, 0))
        by_rank[rank] = (elements + part.elements, whole + part.whole)

    def amounts(self) -> dict[Cut, Amount]:
        """Return how many elements are held of how many, each position once."""
        found = {}
        for cut, positions in self.cuts.items():
            each = [max(by_rank.values()) for by_rank in positions.values()]
            found[cut] = (sum(elements for elements, _ in each), max(whole for _, whole in each))
        return found

    @property
    def held(self) -> int:
        """Elements of sliced tensors that are held."""
        return sum(elements for elements, _ in self.amounts().values())

    @property
    def whole(self) -> int:
        """Elements of these tensors in all."""
        return sum(whole for _, whole in self.amounts().values())

    def lacking(self) -> set[int]:
        """Return the ranks that share a tensor which is not complete."""
        return {
            rank
            for (ranks, _), (elements, whole) in self.amounts().items()
            if elements < whole
            for rank in ranks
        }


@dataclass(frozen=True)
class Pool:
    """Writes of one moment: files written at one line, or one distributed checkpoint."""

    writes: tuple[Write, ...]

    @property
    def step(self) -> int:
        """Optimizer steps done."""
        return self.writes[0][1].step

    @property
    def place(self) -> Place | None:
        """Where the first of them was written."""
        return self.writes[0][1].place

    @property
    def distributed(self) -> bool:
        """True for one checkpoint of all ranks."""
        return self.writes[0][1].distributed

    @cached_property
    def writers(self) -> dict[str, tuple[int, ...]]:
        """The ranks that wrote to each path."""
        found: dict[str, dict[int, None]] = defaultdict(dict)
        for rank, save in self.writes:
            found[save.path][rank] = None
        return {path: tuple(ranks) for path, ranks in found.items()}

    @cached_property
    def contested(self) -> tuple[str, ...]:
        """Paths to which several ranks wrote their own files; only one survives."""
        if self.distributed:
            return ()
        return tuple(path for path, ranks in self.writers.items() if path and len(ranks) > 1)

    @cached_property
    def tallies(self) -> dict[tuple[str, str], Tally]:
        """What stays, per state and class of its model."""
        found: dict[tuple[str, str], Tally] = defaultdict(Tally)
        for rank, save in self.writes:
            if save.path in self.contested and self.writers[save.path][0] != rank:
                continue
            for state in save.states:
                tally = found[state.what, state.cls]
                for part in state.parts:
                    tally.add(rank, part)
                tally.odd += state.odd
                tally.names = max(tally.names, state.names)
                known = tally.missing
                missing = frozenset(state.missing)
                tally.missing = missing if known is None else known & missing
                if rank == self.writes[0][0]:  # other ranks' whole tensors are the same ones
                    tally.elements += state.elements
        return found

    def lacking(self) -> set[int]:
        """Return the ranks of whose shards some are missing."""
        return {rank for tally in self.tallies.values() for rank in tally.lacking()}


def pools(writes: Iterable[Write]) -> list[Pool]:
    """Return the writes by what belongs together, in order.

    Incomplete files are judged together with the others of the same step: ranks may write their
    shards at different lines.
    """
    writes = list(writes)
    checkpoints = _grouped((w for w in writes if w[1].distributed), lambda s: (s.step, s.path))
    files = _grouped(
        (w for w in writes if not w[1].distributed),
        lambda s: (s.step, s.place, s.path if _complete(s) else ""),
    )
    apart = [pool for pool in files if pool.lacking() and not pool.contested]
    joined = _grouped((w for pool in apart for w in pool.writes), lambda s: s.step)
    together = [pool for pool in joined if not pool.lacking()]
    steps = {pool.step for pool in together}
    kept = [pool for pool in files if pool not in apart or pool.step not in steps]
    return [*kept, *together, *checkpoints]


def _complete(save: Save) -> bool:
    """True if a file is a whole model's by itself; a library writes several at one line."""
    models = [state for state in save.states if state.what == "model"]
    whole = not any(state.missing or state.odd for state in models)
    return bool(models) and whole and not any(state.parts for state in save.states)


def _grouped(writes: Iterable[Write], key: Callable[[Save], Hashable]) -> list[Pool]:
    found: dict[Hashable, list[Write]] = defaultdict(list)
    for rank, save in writes:
        found[key(save)].append((rank, save))
    return [Pool(tuple(group)) for group in found.values()]


def passed(run: Run, pool: Pool) -> bool:
    """True if every rank whose shards are missing has run past the place of the write."""
    ranks = {rank.rank: rank for rank in run.ranks}
    wrote = {rank for rank, _ in pool.writes}
    return all(
        rank in wrote or (rank in ranks and _came_past(ranks[rank], pool.step))
        for rank in pool.lacking()
    )


def _came_past(rank: RankRun, step: int) -> bool:
    ended = rank.ended
    return ended is not None and (ended.how in CLEAN or ended.steps > step)


@dataclass(frozen=True, slots=True)
class Finding:
    """One line about writes that belong together."""

    text: str
    place: Place | None
    fix: str = ""


@clause("saves", "A save holds the whole model, or every rank's shards of it.", ("saves",))
def saves(run: Run) -> Verdict:
    """Judge what was written: one rank's file of a sharded state dict looks complete, but holds
    only that rank's shards."""
    writes = [(rank, save) for rank, save in run.all(Save) if save.states and not save.error]
    found = [pool for pool in pools(writes) if _concerns(pool)]
    short = [pool for pool in found if pool.lacking()]
    lost = [*map(_cut, (pool for pool in short if passed(run, pool))), *_overwritten(run)]
    lost = list(
        dict.fromkeys([*_refused(run), *_live_averages(run), *(lost or _not_on_disk(run, writes))])
    )
    if lost:
        places = tuple(finding.place for finding in lost)
        more = tuple(finding.text for finding in lost[1 : SHOWN + 1])
        return violated(lost[0].text, more, places, lost[0].fix)
    if short:
        return not_exercised(f"{_cut(short[0]).text}; the other ranks ended before their save")
    kept = [pool for pool in found if not any(t.missing for t in pool.tallies.values())]
    if not kept:
        partial = [_amounts(pool) for pool in found]
        return not_exercised(
            f"only partial states are saved: {partial[0]}"
            if partial
            else _why_none(run, bool(writes))
        )
    kept.sort(key=lambda pool: any(what == "model" for what, _ in pool.tallies))
    lines = list(dict.fromkeys(_kept(pool) for pool in kept))
    figures = lines[0] if len(lines) == 1 else f"{len(lines)} saves; {lines[-1]}"
    return confirmed(figures, tuple(lines[-SHOWN:-1]))


def _concerns(pool: Pool) -> bool:
    """True if there is a model's or an optimizer's state in it, or a slice of anything."""
    return any(what != "other" or tally.cuts for (what, _), tally in pool.tallies.items())


def _why_none(run: Run, wrote: bool) -> str:
    if wrote:
        return "no save holds a model's or an optimizer's state"
    cut_short = [rank.ended.steps for rank in run.ranks if rank.ended and rank.ended.how == "steps"]
    if cut_short:
        return (
            f"no save in the first {plural(max(cut_short), 'step')}; "
            "use `--steps all` to run the script to its end"
        )
    if all(rank.ended and rank.ended.how == "script" for rank in run.ranks):
        return "the script saves nothing"
    return "the script ended before a save"


def _cut(pool: Pool) -> Finding:
    """Describe writes that hold fewer shards than all ranks have."""
    amounts = _amounts(pool, sliced=True)
    if pool.contested:
        path = pool.contested[0]
        who = ranks_in_words(pool.writers[path])
        return Finding(
            f"{who} write {_named(path)}, so only one rank's shards survive: {amounts}", pool.place
        )
    paths, who = _paths(pool), ranks_in_words(rank for rank, _ in pool.writes)
    verb = "holds" if len(pool.writers) == 1 else "hold"
    fix = "pass the same checkpoint path on every rank" if pool.distributed else ""
    return Finding(f"{paths} {verb} only the shards of {who}: {amounts}", pool.place, fix)


def _kept(pool: Pool) -> str:
    """Describe writes that hold all."""
    paths = _paths(pool)
    if any(tally.cuts for tally in pool.tallies.values()):
        ranks = len({rank for rank, _ in pool.writes})
        return f"{paths}: shards of {plural(ranks, 'rank')}, {_amounts(pool)}"
    models = [(cls, t) for (what, cls), t in pool.tallies.items() if what == "model"]
    if len(models) == 1 and not models[0][1].missing and not models[0][1].odd:
        verb = "loads" if len(pool.writers) == 1 else "load"
        return f"{paths} {verb} into an unsharded `{models[0][0]}`: {_amounts(pool)}"
    return f"{paths}: {_amounts(pool)}"


def _paths(pool: Pool) -> str:
    memory = [_named("")] if "" in pool.writers else []
    return ", ".join(filter(None, [listed(filter(None, pool.writers)), *memory]))


def _named(path: str) -> str:
    return f"`{path}`" if path else "an in-memory buffer"


def _amounts(pool: Pool, sliced: bool = False) -> str:
    """Return how much is held of each state.

    Args:
        sliced: leave out what is whole.
    """
    states = sorted(pool.tallies.items(), key=lambda item: item[0])
    return "; ".join(
        _amount(what, cls, tally)
        for (what, cls), tally in states
        if (tally.cuts or not sliced) and (what != "other" or tally.cuts)
    )


def _amount(what: str, cls: str, tally: Tally) -> str:
    owner = {"model": f"`{cls}`", "optimizer": "the optimizer state"}.get(what, "other tensors")
    if tally.cuts:
        return f"{tally.held:,} of {tally.whole:,} elements of {owner}"
    if what != "model":
        return f"{owner}, {tally.elements:,} elements"
    have = tally.names - len(tally.missing or ())
    return f"{have} of {plural(tally.names, 'parameter')} of {owner}, {tally.elements:,} elements"


def _refused(run: Run) -> Iterator[Finding]:
    """Yield writes of shards that failed because of their content."""
    for _, save in run.all(Save):
        if save.error and any(state.parts for state in save.states):
            text = f"`{save.writer}` cannot write shards to {_named(save.path)}: {save.error}"
            yield Finding(text, save.place)


def _live_averages(run: Run) -> Iterator[Finding]:
    """Yield averages of the weights that share their memory with what is trained."""
    for _, save in run.all(Save):
        if save.live_average:
            text = f"`{save.live_average}` in {_named(save.path)} shares the memory of the trained"
            fix = "start the average from copies (`.detach().clone()`) of the parameters"
            yield Finding(f"{text} parameters, so it averages nothing", save.place, fix)


def _overwritten(run: Run) -> Iterator[Finding]:
    """Yield files to which one rank writes a state and another rank writes less."""
    found: dict[tuple[int, str], dict[int, Save]] = defaultdict(dict)
    for rank, save in run.all(Save):
        if save.path and not save.distributed and not save.error:
            found[save.step, save.path].setdefault(rank, save)
    for (_, path), by_rank in found.items():
        sizes = {rank: save.tensors for rank, save in by_rank.items()}
        if len(set(sizes.values())) > 1 and any(save.states for save in by_rank.values()):
            each = ", ".join(f"{plural(n, 'tensor')} on rank {rank}" for rank, n in sizes.items())
            stored = run.saved.get(path)
            here = f" ({stored.tensors} in this run)" if stored and not stored.broken else ""
            place = next(save.place for save in by_rank.values() if save.states)
            text = f"several ranks write `{path}` ({each}), and only the last write survives{here}"
            yield Finding(text, place)


def _not_on_disk(run: Run, writes: list[Write]) -> list[Finding]:
    """Return the files that hold less at the end than the last write put into them."""
    last = {save.path: save for _, save in writes if not save.distributed}
    found = []
    for path, save in last.items():
        stored = run.saved.get(path)
        if stored is None or any(rank.ended is None for rank in run.ranks):
            continue
        if stored.broken:
            found.append(Finding(f"`{path}` cannot be read back: {stored.broken}", save.place))
        elif stored.tensors < save.tensors:
            text = f"`{path}` holds {stored.tensors} of the {save.tensors} tensors written to it"
            found.append(Finding(text, save.place))
    return found
