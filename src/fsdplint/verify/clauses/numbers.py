"""Whether numbers that a script uses are right: losses, gradient norms, DTensor reductions."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from fsdplint.verify.clauses.clause import clause, confirmed, not_exercised, violated
from fsdplint.verify.clauses.initialisation import unwritten
from fsdplint.verify.clauses.queries import SHOWN
from fsdplint.verify.events import (
    Backward,
    FirstNan,
    LossMean,
    Norm,
    NumberRead,
    Place,
    ReadCombined,
    Step,
)
from fsdplint.verify.evidence import RankRun, Run
from fsdplint.verify.figures import count, plural, ranks_in_words
from fsdplint.verify.verdict import Verdict

TOLERANCE = 1e-3
"""How far a norm may lie from the true one, relatively: rounding of sums over many fp32 gradients
stays below 1e-5, and a rank left out of two equal ones makes 0.3."""
COARSE_TOLERANCE = 2e-2
"""The same for gradients of two bytes: bf16 rounds to 0.4 %, at each of three sums."""
_NO_OUTPUT = "no module returned"
_COMBINATIONS: dict[str, Callable[[list[float]], float]] = {
    "sum": math.fsum,
    "max": max,
    "min": min,
    "avg": lambda values: math.fsum(values) / len(values),
}


@clause("loss", "Losses are finite.", ("gradients",))
def loss(run: Run) -> Verdict:
    """Judge the scalars that a backward starts from."""
    backwards = run.all(Backward)
    if not backwards:
        return not_exercised("no backward pass started from a scalar loss")
    bad = [(rank, event) for rank, event in backwards if not event.finite]
    if bad and all(event.scaled for _, event in bad):
        return not_exercised(
            f"{len(bad)} of {plural(len(backwards), 'loss', 'losses')} not finite after scaling; "
            "the gradient scaler then lowers its scale"
        )
    if bad and unwritten(run):
        return not_exercised(
            f"loss is {bad[0][1].loss}; values are uninitialized (see `initialised`)"
        )
    if bad:
        rank, first = bad[0]
        nan, place = _origin(run, first.step)
        return violated(
            f"loss is {first.loss} on rank {rank} at step {first.step + 1}",
            (f"{len(bad)} of {plural(len(backwards), 'loss', 'losses')} not finite", *nan),
            (first.place, place),
            _look_at(run, nan[0]),
        )
    values = [float(event.loss) for _, event in backwards]
    scaled = " (scaled by the gradient scaler)" * any(event.scaled for _, event in backwards)
    return confirmed(
        f"{plural(len(values), 'loss', 'losses')} between {min(values):.4g} and {max(values):.4g}"
        f"{scaled}{_own_means(run)}"
    )


def _look_at(run: Run, origin: str) -> str:
    """Return what to do about a NaN, unless it is to inspect the module and its input."""
    if _NO_OUTPUT in origin or not run.all(FirstNan):
        return "check how the loss is computed"
    if any(event.weights for _, event in run.all(FirstNan)):
        return "find what made the module's parameters NaN: an optimizer step or a load"
    return ""


def _own_means(run: Run) -> str:
    """Describe losses that are means over different numbers of targets on each rank.

    FSDP averages the gradients of all ranks equally, so a target counts more on one rank than on
    another. A backward pass that starts from a different value may already correct for that.
    """
    ranks = [
        [mean.targets for mean in rank.of(LossMean) if _is_loss(rank, mean)] for rank in run.ranks
    ]
    apart = [row for row in zip(*ranks, strict=False) if len(set(row)) > 1]
    if not apart:
        return ""
    worst = max(apart, key=lambda row: max(row) / max(1, min(row)))
    few, many = count(min(worst)), count(max(worst))
    return (
        f"; each rank averages over its own targets ({few} to {many}), but FSDP weights all ranks "
        "equally"
    )


def _is_loss(rank: RankRun, mean: LossMean) -> bool:
    return any(
        math.isclose(float(backward.loss), mean.value, rel_tol=TOLERANCE)
        for backward in rank.of(Backward)
    )


def _origin(run: Run, before: int) -> tuple[tuple[str, ...], Place | None]:
    """Return where a NaN comes from, in lines, and the place of the module that returned it.

    Args:
        before: steps done at the first loss that is not finite.
    """
    steps = [step.number for _, step in run.all(Step) if _broken(step)]
    lines = [f"the gradients are NaN or infinite from step {min(steps)} on"] if steps else []
    found = [(rank, event) for rank, event in run.all(FirstNan) if event.step <= before]
    if not found:
        until = " before that" if run.all(FirstNan) else ""
        return (f"{_NO_OUTPUT} a NaN{until}", *lines), None
    rank, first = min(found, key=lambda each: each[1].step)
    given = "its input has a NaN" if first.given else "its input has none"
    if first.weights:
        given = f"{given}, its parameters have one"
    name = f"`{first.name}` (`{first.cls}`)" if first.name else f"`{first.cls}`"
    line = f"first NaN: output of {name} on rank {rank} at step {first.step + 1}; {given}"
    return (line, *lines), first.place


def _broken(step: Step) -> bool:
    return any(change.gradient == "infinite" for change in step.changes)


@dataclass(frozen=True, slots=True)
class _Clip:
    """One clip on all ranks: the norm that each used, and the true norm of what it clipped."""

    step: int
    place: Place | None
    used: dict[int, float]
    true: dict[int, float]
    norm: Norm

    @property
    def tolerance(self) -> float:
        return TOLERANCE if self.norm.precision >= 4 else COARSE_TOLERANCE

    @property
    def off(self) -> float:
        """The largest relative deviation on any rank."""
        return max(_deviation(value, self.true[rank]) for rank, value in self.used.items())

    @property
    def finite(self) -> bool:
        return all(map(math.isfinite, self.true.values()))

    @property
    def agreed(self) -> bool:
        """True if every rank uses the same number."""
        values = list(self.used.values())
        return all(_deviation(value, values[0]) <= self.tolerance for value in values)


@clause(
    "gradient-norm",
    "Gradients are clipped by their global norm, and it is finite.",
    ("gradient-norm",),
)
def gradient_norm(run: Run) -> Verdict:
    """Judge against the gradients' own norm, taken before the clip on every rank and summed."""
    if not run.all(Norm):
        return not_exercised("gradients were not clipped by norm")
    clips = _clips(run)
    if not clips:
        return not_exercised("the norms of other ranks are unknown")
    finite = [clip for clip in clips if clip.finite]
    wrong = [c for c in finite if c.off > c.tolerance and not (c.norm.given and c.agreed)]
    if wrong:
        return _wrong(wrong)
    if finite and finite[-1] is clips[-1]:
        apart = [clip for clip in finite if clip.off > clip.tolerance or not clip.agreed]
        return _unproved(apart[0]) if apart else _right(finite)
    if clips[-1].norm.scaled:
        return not_exercised("the norm is not finite so far; the gradient scaler skips such steps")
    if any(not event.finite for _, event in run.all(Backward)):
        return not_exercised("neither the norm nor the loss is finite (see `loss`)")
    last = clips[-1]
    value = next(value for value in last.true.values() if not math.isfinite(value))
    return violated(
        f"the norm is {value} at step {last.step + 1}, but all losses are finite", (), (last.place,)
    )


def _wrong(wrong: list[_Clip]) -> Verdict:
    """Judge clips by norms that are not the whole gradient's."""
    first = wrong[0]
    each = ", ".join(f"{value:.4g} on rank {rank}" for rank, value in sorted(first.used.items()))
    details = [
        f"`{first.norm.call}` at step {first.step + 1}; {plural(len(wrong), 'clip')} in total"
    ]
    if first.norm.api == "fsdp1":
        details.append(
            "it sees only this rank's shards of FSDP1's gradients; "
            "call the model's own `clip_grad_norm_` instead"
        )
    return violated(
        f"clipped by a norm of {each}; the global norm is {_first(first.true):.4g}",
        tuple(details),
        tuple(clip.place for clip in wrong),
    )


def _unproved(clip: _Clip) -> Verdict:
    """Judge clips as in pipelines, where a rank has gradients that no other rank has."""
    each = ", ".join(f"{value:.4g} on rank {rank}" for rank, value in sorted(clip.used.items()))
    if clip.agreed:
        return not_exercised(
            f"every rank clips by {_first(clip.used):.4g}, a norm that the script computes; the "
            f"gradients that rank {next(iter(clip.true))} shares with other ranks have norm "
            f"{_first(clip.true):.4g}"
        )
    return not_exercised(f"each rank clips by the norm of its own gradients: {each}")


def _right(clips: list[_Clip]) -> Verdict:
    last, largest = clips[-1], max(clip.off for clip in clips)
    figures = (
        f"{plural(len(clips), 'global norm')}, the last {_first(last.true):.4g} "
        f"(error at most {largest:.1e})"
    )
    partial = next((clip for clip in clips if clip.norm.combine), None)
    if partial is None:
        return confirmed(figures)
    note = "the value is a DTensor with this rank's part; call `full_tensor()` for the global norm"
    return confirmed(figures, (note,))


def _first(values: dict[int, float]) -> float:
    return next(iter(values.values()))


def _clips(run: Run) -> list[_Clip]:
    """Return the clips whose true norm is known on some rank, in order."""
    together: dict[tuple[int, Place | None, int], dict[int, Norm]] = defaultdict(dict)
    for rank in run.ranks:
        seen: dict[tuple[int, Place | None], int] = defaultdict(int)
        for norm in rank.of(Norm):
            key = (norm.step, norm.place)
            together[(*key, seen[key])][rank.rank] = norm
            seen[key] += 1
    clips = (_clip(step, place, norms) for (step, place, _), norms in together.items())
    return [clip for clip in clips if clip]


def _clip(step: int, place: Place | None, norms: dict[int, Norm]) -> _Clip | None:
    used, true = {}, {}
    for rank, norm in norms.items():
        gone_by, whole = _used(norm, norms), _true(norm, norms)
        if gone_by is not None and whole is not None:
            used[rank], true[rank] = gone_by, whole
    return _Clip(step, place, used, true, norms[next(iter(used))]) if used else None


def _true(norm: Norm, norms: dict[int, Norm]) -> float | None:
    """Return the norm of the gradients that a rank clipped, with what other ranks hold of them."""
    power = float(norm.norm_type)
    parts = [float(norm.whole)]
    for share in norm.shares:
        for rank in share.ranks:
            theirs = norms.get(rank)
            same = [s for s in theirs.shares if s.ranks == share.ranks] if theirs else []
            if not same or theirs is None or theirs.norm_type != norm.norm_type:
                return None
            parts.append(float(same[0].power))
    return None if power == 0 else _norm(parts, power)


def _used(norm: Norm, norms: dict[int, Norm]) -> float | None:
    """Return the norm that a rank clips by, combined over ranks if it is a DTensor in parts."""
    if not norm.combine:
        return float(norm.used)
    if any(rank not in norms for rank in norm.across):
        return None
    return _combined(norm.combine, [float(norms[r].used) for r in norm.across], norm.norm_type)


def _norm(parts: list[float], power: float) -> float:
    if any(math.isnan(part) for part in parts):
        return math.nan
    return max(parts) if math.isinf(power) else math.fsum(parts) ** (1 / power)


def _combined(how: str, values: list[float], norm_type: str) -> float | None:
    if how == "norm":
        power = float(norm_type)
        return _norm([value if math.isinf(power) else value**power for value in values], power)
    combine = _COMBINATIONS.get(how)
    return combine(values) if combine else None


def _deviation(value: float, true: float) -> float:
    if value == true:
        return 0.0
    return abs(value - true) / max(abs(true), abs(value)) if math.isfinite(value) else math.inf


@clause(
    "reductions",
    "A number read from a DTensor is the global value, not this rank's local one.",
    ("reductions",),
)
def reductions(run: Run) -> Verdict:
    """Judge reads of DTensors: `item()` communicates nothing, so it lacks other ranks' values."""
    reads = run.all(NumberRead)
    combined = {event.read for _, event in run.all(ReadCombined)}
    local = [(rank, e) for rank, e in reads if e.local and e.place not in combined]
    local = [(rank, e) for rank, e in local if not _same_everywhere(run, e)]
    if local:
        first = local[0][1]
        values = {
            rank: event.value
            for rank, event in reversed(local)
            if (event.place, event.step) == (first.place, first.step)
        }
        places = dict.fromkeys(event.place for _, event in local)
        what = " ".join(first.placements)
        return violated(
            f"`{first.read}` reads the local value of a {what} DTensor, not the global one: "
            f"{_each(values)}",
            tuple(f"also read at {place}" for place in list(places)[1:SHOWN] if place),
            tuple(places),
        )
    if any(event.local for _, event in reads):
        return not_exercised(
            "local values are read, but they are equal or the script combines them"
        )
    if not reads:
        return not_exercised("no number was read from a DTensor")
    lines = len({event.place for _, event in reads})
    return confirmed(f"global values read at {plural(lines, 'line')}")


def _same_everywhere(run: Run, read: NumberRead) -> bool:
    """True if a truth value or an extreme is the same on every rank, and so the whole's."""
    moment = (read.place, read.step)
    values = {
        rank: e.value
        for rank, e in reversed(run.all(NumberRead))
        if e.local and (e.place, e.step) == moment
    }
    divided = [placement for placement in read.placements if not placement.startswith("R")]
    extreme = all(re.fullmatch(r"Partial\((max|min)\)", placement) for placement in divided)
    return (
        len(values) == len(run.ranks)
        and len(set(values.values())) == 1
        and (read.value in ("True", "False") or extreme)
    )


def _each(values: dict[int, str]) -> str:
    if len(set(values.values())) == 1 and len(values) > 1:
        return f"{next(iter(values.values()))} on {ranks_in_words(values)}"
    return ", ".join(f"{_short(value)} on rank {rank}" for rank, value in sorted(values.items()))


def _short(value: str) -> str:
    try:
        return f"{float(value):.4g}"
    except ValueError:  # True, False
        return value
