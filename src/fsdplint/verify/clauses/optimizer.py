"""What the optimizers hold, and whether it moves."""

from __future__ import annotations

from fsdplint.verify.clauses.clause import (
    Judgement,
    clause,
    confirmed,
    not_exercised,
    violated,
)
from fsdplint.verify.clauses.models import changes, count, first_snapshots, listed, parameters
from fsdplint.verify.events import OptimizerBuilt, Sharded, Step
from fsdplint.verify.evidence import Run


@clause(
    "optimizer",
    "The optimizers hold the sharded model's own parameters, all that are trained.",
    ("sharding", "optimizer", "step", "snapshot"),
)
def optimizer(run: Run) -> Judgement:
    """An optimizer built before sharding steps parameters that the model no longer has."""
    built = [event for _, event in run.all(OptimizerBuilt)]
    if not run.all(Sharded) or not built:
        return not_exercised("no module was sharded" if built else "no optimizer was built")
    used = {(rank, step.optimizer) for rank, step in run.all(Step)}
    stale = [
        event
        for rank, event in run.all(OptimizerBuilt)
        if event.stale and (not used or (rank, event.number) in used)
    ]
    if stale:
        first = stale[0]
        return violated(
            f"`{first.cls}` holds {count(len(first.stale), 'parameter')} that sharding has "
            f"replaced, and {first.live} of the model's own",
            (f"replaced: {listed(first.stale)}",),
            (first.place, *(event.place for _, event in run.all(Sharded))),
        )
    missing = _missing(run)
    live = max(event.live for event in built)
    if not live:
        return not_exercised("no optimizer holds a parameter of a sharded model")
    if missing:  # on purpose, as where a head is trained alone, or by an optimizer not of torch's
        return not_exercised(
            f"{count(len(missing), 'parameter')} with gradients held by no optimizer of torch's, "
            f"on purpose or not: {listed(missing)}"
        )
    names = ", ".join(f"`{name}`" for name in sorted({e.cls for e in built if e.live}))
    return confirmed(f"{names} holds {count(live, 'parameter')} of the sharded model")


def _missing(run: Run) -> list[str]:
    """Returns the parameters in units that get gradients and are in no optimizer."""
    held: set[str] = set()
    fed: dict[str, None] = {}
    for rank in run.ranks:
        held |= {p.name for s in first_snapshots(rank) for _, p in parameters(s) if p.held}
        for _, change in changes(rank):
            if change.held:
                held.add(change.name)
            if change.gradient == "finite":
                fed[change.name] = None
    return [name for name in fed if name not in held]


@clause(
    "parameters-change",
    "A step changes the parameters that have gradients.",
    ("optimizer", "step"),
)
def parameters_change(run: Run) -> Judgement:
    """Only of parameters that an optimizer holds, at a learning rate that is not zero; early in a
    warmup the rate may be so low that nothing shows."""
    moved: dict[str, bool] = {}
    due: set[str] = set()
    numbers = set()
    for rank in run.ranks:
        for step, change in changes(rank):
            if change.held and change.moving and change.gradient == "finite":
                moved[change.name] = moved.get(change.name, False) or change.changed
                numbers.add(step.number)
                if change.due:
                    due.add(change.name)
    if not moved:
        return not_exercised("no held parameter had a gradient and a learning rate above zero")
    still = [name for name, changed in moved.items() if not changed]
    stuck = [name for name in still if name in due]
    if stuck:
        return violated(
            f"{len(stuck)} of {count(len(moved), 'parameter')} with gradients did not change in "
            f"{count(len(numbers), 'step')}: {listed(stuck)}"
        )
    if len(still) == len(moved):
        return not_exercised("the learning rate is too low so far for a step to show")
    figures = f"{len(moved) - len(still)} of {count(len(moved), 'parameter')} moved in " + count(
        len(numbers), "step"
    )
    if still:
        return confirmed(
            figures, (f"steps below the resolution of their type so far: {listed(still)}",)
        )
    return confirmed(figures)
