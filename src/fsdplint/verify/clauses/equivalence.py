"""Whether sharding changes what is computed."""

from __future__ import annotations

import re
from dataclasses import replace

from fsdplint.verify.clauses.clause import confirmed, not_exercised, violated
from fsdplint.verify.events import Compared, Drifted, NotCompared, ProbeFailed, Snapshot
from fsdplint.verify.evidence import Run
from fsdplint.verify.figures import plural
from fsdplint.verify.verdict import Status, Verdict

NAME = "equivalence"
CONTRACT = "The sharded run computes the same as an unsharded run."
_SHORT = 1e-3
_WHY = {
    False: "32-bit numbers; a different order of summation costs about 1e-7",
    True: "16-bit numbers take part; each rounding costs up to 4e-3",
}


def equivalence(sharded: Run, alone: Run | None) -> Verdict:
    """Return the verdict on a sharded run and its replay in a single process.

    `alone` is None if the sharded run left nothing to replay.
    """
    found = _found(sharded, alone)
    if found.status is Status.CONFIRMED and (names := _parted(sharded)):
        found = not_exercised(f"{names} are no longer tied (see `ties`)")
    return replace(found, clause=NAME, contract=CONTRACT)


def _found(sharded: Run, alone: Run | None) -> Verdict:
    failed = [event.error for _, event in sharded.all(ProbeFailed) if event.probe == "capture"]
    if failed:
        return not_exercised(failed[0].removeprefix("Incomparable: "))
    if len(sharded.ranks) < sharded.world_size:
        return not_exercised("ranks on other nodes cannot be compared")
    if alone is None:
        return not_exercised("not every rank finished an optimizer step")
    return _unread(alone) or _judged(alone)


def _parted(sharded: Run) -> str:
    """Return weights that are no longer tied; FSDP in one process unties them too."""
    ties = [tie for _, snapshot in sharded.all(Snapshot) for tie in snapshot.ties]
    gone = next((tie.names for tie in ties if not tie.alive), ())
    return " and ".join(f"`{name}`" for name in gone)


def _unread(alone: Run) -> Verdict | None:
    """Return a verdict if the single process did not compare everything, else None."""
    reasons = [event.reason for _, event in alone.all(NotCompared)]
    reasons += [event.error for _, event in alone.all(ProbeFailed) if event.probe == "reference"]
    if reasons and not _off(alone):
        return not_exercised(reasons[0])
    if alone.all(Compared):
        return None
    ended = alone.ranks[0].ended if alone.ranks else None
    if ended is not None and ended.kind:
        return not_exercised(
            f"the script fails in one process ({_crash(ended.kind, ended.message)})"
        )
    if ended is not None:
        return not_exercised("the script takes no optimizer step in one process")
    return not_exercised("the script does not reach its first optimizer step in one process")


def _crash(kind: str, message: str) -> str:
    line = next(iter(message.splitlines()), "")
    return f"{kind}: {line}" if line else kind


def _judged(alone: Run) -> Verdict:
    """Judge by the largest difference, and name the first one that is too large."""
    all_of = [event for _, event in alone.all(Compared)]
    worst = max(all_of, key=lambda event: event.difference / event.tolerance)
    details = (
        *_by_kind(all_of),
        f"tolerance: relative L2, {_WHY[worst.tolerance > _SHORT]}",
        "each step starts from the state of the sharded run, so rounding does not accumulate",
        *(
            f"trained on its own, the unsharded model drifts by {_number(event.difference)} "
            "(accumulated rounding)"
            for _, event in alone.all(Drifted)
        ),
    )
    if off := _off(alone):
        first = off[0]
        worst = max(off, key=lambda event: event.difference / event.tolerance)
        return violated(
            f"differs from step {first.step} on, first in the {first.what}; "
            f"largest difference {_number(worst.difference)} ({_named(worst)}), "
            f"tolerance {_number(worst.tolerance)}",
            details,
            (first.place,),
        )
    steps = max(event.step for event in all_of)
    parameters = max((e.count for e in all_of if e.what == "parameter"), default=0)
    most = f"largest difference {_number(worst.difference)} ({_named(worst)})"
    return confirmed(
        f"{plural(steps, 'step')}, {plural(parameters, 'parameter')}: "
        f"{most if worst.difference else 'no difference'}, tolerance {_number(worst.tolerance)}",
        details,
    )


def _off(alone: Run) -> list[Compared]:
    return [event for _, event in alone.all(Compared) if event.difference > event.tolerance]


def _by_kind(all_of: list[Compared]) -> list[str]:
    """Return a line per kind of number that was compared, with its largest difference."""
    found = []
    for what in dict.fromkeys(event.what for event in all_of):
        worst = max((e for e in all_of if e.what == what), key=lambda event: event.difference)
        most = f"at most {_number(worst.difference)} ({worst.name}, step {worst.step})"
        found.append(f"{what}: {most if worst.difference else 'equal'}{_times(worst)}")
    return found


def _times(compared: Compared) -> str:
    if compared.times is None:
        return ""
    if abs(compared.times) < compared.tolerance:
        return ", zero in the sharded run"
    return f", {compared.times:.3g} times the unsharded one"


def _named(compared: Compared) -> str:
    if compared.what == "output":
        return compared.name
    return compared.name if compared.what == "parameter" else f"{compared.what} of {compared.name}"


def _number(value: float) -> str:
    """Return two digits, without the exponent's leading zero."""
    return re.sub(r"e([-+])0", r"e\1", f"{value:.2g}")
