"""How two runs differ, in sentences: the figures to print, and the reason to refuse."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.verify.differences import Checkpoint, Compared, Differences
from fsdplint.verify.events import Backward, Drawn, Step
from fsdplint.verify.evidence import RankRun, Run
from fsdplint.verify.figures import plural

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Losses:
    """The losses of two runs: each value from which a backward pass began, without the factor of a
    gradient scaler, in order.

    Attributes:
        backwards: how many each run has, over all ranks; `steps`: of optimizers.
        pairs: rank, number of the backward pass from 1, and both values.
        batch: the first batch of a ``DataLoader`` that differs, as rank and number; or None.
    """

    backwards: tuple[int, int]
    steps: tuple[int, int]
    pairs: tuple[tuple[int, int, float, float], ...]
    batch: tuple[int, int] | None

    def largest(self) -> tuple[float, tuple[int, int, float, float] | None]:
        """Return the largest relative difference, and where it is."""
        return max(
            ((_relative(was, now), (rank, n, was, now)) for rank, n, was, now in self.pairs),
            key=lambda pair: pair[0],
            default=(0.0, None),
        )


def _relative(was: float, now: float) -> float:
    if was == now:
        return 0.0
    if not (math.isfinite(was) and math.isfinite(now)):
        return math.inf
    return abs(was - now) / max(abs(was), abs(now))


def losses(before: Run, after: Run) -> Losses:
    """Return the losses of two runs."""
    ranks = list(zip(before.ranks, after.ranks, strict=False))
    return Losses(
        (len(before.all(Backward)), len(after.all(Backward))),
        (len(before.all(Step)), len(after.all(Step))),
        tuple(
            (one.rank, number, was, now)
            for one, other in ranks
            for number, (was, now) in enumerate(zip(_of(one), _of(other), strict=False), 1)
        ),
        next((found for one, other in ranks if (found := _batch(one, other))), None),
    )


def _of(rank: RankRun) -> list[float]:
    return [float(event.loss) / event.scale for event in rank.of(Backward)]


def _batch(one: RankRun, other: RankRun) -> tuple[int, int] | None:
    batches = zip(one.of(Drawn), other.of(Drawn), strict=False)
    apart = (number for number, (was, now) in enumerate(batches, 1) if was.digest != now.digest)
    return next(((one.rank, number) for number in apart), None)


def idle(found: Compared) -> str:
    """Return why the first run shows nothing; empty if it trains."""
    if found.moved[0]:
        return ""
    return "the script trains nothing before the migration: no parameter changes"


def structure(found: Compared, seen: Losses) -> str:
    """Return what the second run does otherwise than the first, whatever the values are; empty if
    there is nothing."""
    if found.unread:
        return f"not all of {_listed(found.unread)} could be read"
    return (
        _parameters(found)
        or _precision(found)
        or _counts(seen)
        or _infinite(seen)
        or next(filter(None, map(_lacking, found.checkpoints)), "")
    )


def values(found: Compared, seen: Losses) -> str:
    """Return which values of the second run are not those of the first; empty if all are.

    What comes first in a program comes first: a later difference follows from an earlier one.
    """
    return (
        _initial(found.initial)
        or _losses(seen, found.tolerance)
        or _trained(found)
        or next(filter(None, map(_saved_values, found.checkpoints)), "")
    )


def _parameters(found: Compared) -> str:
    for kind, what in ((found.initial, "the model has"), (found.parameters, "training has")):
        if kind.lost or kind.new:
            return f"{what} other parameters after the migration: {_names(kind)}"
    if found.still:
        return f"training changes {_listed(found.still)} only before the migration"
    return ""


def _initial(found: Differences) -> str:
    if found.off:
        off = f"{len(found.off)} of {plural(found.count, 'parameter')}"
        return f"initial parameters differ, before any training: {off} ({_worst(found)})"
    return ""


def _names(found: Differences) -> str:
    lost = f"{_listed(found.lost)} missing" if found.lost else ""
    new = f"{_listed(found.new)} new" if found.new else ""
    return ", ".join(filter(None, (lost, new)))


def _listed(names: tuple[str, ...]) -> str:
    shown = ", ".join(f"`{name}`" for name in names[:_SHOWN])
    return f"{shown} and {len(names) - _SHOWN} more" if len(names) > _SHOWN else shown


def _worst(found: Differences) -> str:
    name, off = found.off[0]
    return f"`{name}` {_by(off)}"


def _by(off: float) -> str:
    return f"by {number(off)}" if math.isfinite(off) else "not comparable"


def _precision(found: Compared) -> str:
    if found.short[0] == found.short[1]:
        return ""
    was, now = ("16-bit" if short else "32-bit" for short in found.short)
    return f"the script computes in {was} numbers before the migration and in {now} ones after it"


def _counts(seen: Losses) -> str:
    for (was, now), what in ((seen.backwards, "backward pass"), (seen.steps, "optimizer step")):
        if was != now:
            nouns = "backward passes" if what == "backward pass" else "optimizer steps"
            return f"{plural(was, what, nouns)} before the migration, but {now} after it"
    return ""


def _infinite(seen: Losses) -> str:
    for rank, at, was, _ in seen.pairs:
        if not math.isfinite(was):
            where = f"backward pass {at} of rank {rank}"
            return f"the loss is {was} before the migration ({where}), so that it says nothing"
    return ""


def _losses(seen: Losses, tolerance: float) -> str:
    for rank, at, was, now in seen.pairs:
        where = f"backward pass {at} of rank {rank}"
        if _relative(was, now) > tolerance:
            data = f"; batch {seen.batch[1]} of rank {seen.batch[0]} differs" if seen.batch else ""
            return (
                f"losses differ: {was:.7g} before the migration and {now:.7g} after it ({where}, "
                f"tolerance {number(tolerance)}){data}"
            )
    return ""


def _trained(found: Compared) -> str:
    if found.parameters.off:
        off = f"{len(found.parameters.off)} of {plural(found.parameters.count, 'parameter')}"
        return (
            f"trained parameters differ: {off}, {_worst(found.parameters)} of what training "
            f"changes (tolerance {number(found.tolerance)})"
        )
    return ""


def _lacking(found: Checkpoint) -> str:
    """Return what a checkpoint lacks after the migration; what it has beside that is no loss."""
    if found.before and not found.after:
        return f"nothing is saved in place of {_listed(found.before)} after the migration"
    lost = (*found.tensors.lost, *found.numbers.lost)
    if lost:
        return f"{_where(found)} lacks {_listed(lost)}"
    if found.slices:
        return f"{_where(found)} holds only a part of {_listed(found.slices)}"
    return ""


def _saved_values(found: Checkpoint) -> str:
    for kind in (found.tensors, found.numbers):
        if kind.off:
            return (
                f"{_where(found)} has other values: {len(kind.off)} of {kind.count}, {_worst(kind)}"
            )
    return ""


def _where(found: Checkpoint) -> str:
    if found.before == found.after:
        return _listed(found.after)
    return f"{_listed(found.after)}, in place of {_listed(found.before)},"


def figures(found: Compared, seen: Losses) -> Iterator[str]:
    """Yield a line for each kind of thing that was compared."""
    if found.adopted:
        count = plural(found.adopted, "parameter")
        yield (
            f"initial parameters: {count} drawn from other random numbers; the migrated run "
            "starts from the original's"
        )
    elif not found.initial.off:
        yield f"initial parameters: {found.initial.count} of {found.initial.count} equal"
    if found.restored:
        yield f"random numbers: made the same when {' and when '.join(found.restored)}"
    equal = sum(_relative(was, now) <= found.tolerance for *_, was, now in seen.pairs)
    largest, _ = seen.largest()
    yield f"losses: {equal} of {max(seen.backwards)} equal ({_most(largest)})"
    of = found.parameters
    yield (
        f"parameters: {of.count - len(of.off)} of {of.count} equal ({_most(of.largest)} of what "
        f"training changes); {found.moved[1]} trained"
        f"{_left_out(found.unclear)}"
    )
    yield from (line for each in found.checkpoints for line in _saved(each))
    yield f"tolerance: {number(found.tolerance)} ({'16' if found.short[0] else '32'}-bit numbers)"


def _left_out(elements: int) -> str:
    if not elements:
        return ""
    return f"; {plural(elements, 'element')} left out, whose gradients are nothing but rounding"


def _most(largest: float) -> str:
    return f"largest relative difference {number(largest)}" if largest else "no difference"


def _saved(found: Checkpoint) -> Iterator[str]:
    if found.before and found.after:
        same = found.before == found.after
        paths = _listed(found.after) + ("" if same else f" in place of {_listed(found.before)}")
        tensors, numbers = found.tensors, found.numbers
        equal = tensors.count - len(tensors.off)
        of_numbers = f", {numbers.count - len(numbers.off)} of {numbers.count} numbers equal"
        unclear = f", {found.unclear} were parts before" if found.unclear else ""
        yield (
            f"saved: {paths}: {equal} of {tensors.count} tensors equal"
            f"{of_numbers * bool(numbers.count)} ({_most(tensors.largest)}){unclear}"
        )
    elif found.after:
        yield f"saved: {_listed(found.after)} only after the migration"
    else:
        yield f"saved: {_listed(found.before)} only before the migration"


def number(value: float) -> str:
    """Return two digits."""
    return f"{value:.2g}".replace("e-0", "e-")
