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
from fsdplint.verify.events import OptimizerBuilt, Parameter, Sharded
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
    stale = [event for event in built if event.stale]
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
    if missing and live:
        return violated(
            f"{count(len(missing), 'parameter')} with gradients held by no optimizer: "
            f"{listed(missing)}",
            (),
            tuple(event.place for event in built),
        )
    if not live:
        return not_exercised("no optimizer holds a parameter of a sharded model")
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
    """Only of parameters that an optimizer holds, at a learning rate that is not zero."""
    moved: dict[str, bool] = {}
    numbers = set()
    for rank in run.ranks:
        for step, change in changes(rank):
            if change.held and change.moving and change.gradient == "finite":
                moved[change.name] = moved.get(change.name, False) or change.changed
                numbers.add(step.number)
    if not moved:
        return not_exercised("no held parameter had a gradient and a learning rate above zero")
    coarse = {p.name for p in _low_precision(run)}
    still = [name for name, changed in moved.items() if not changed]
    if any(name not in coarse for name in still):
        return violated(
            f"{len(still)} of {count(len(moved), 'parameter')} with gradients did not change in "
            f"{count(len(numbers), 'step')}: {listed(still)}"
        )
    figures = f"{len(moved) - len(still)} of {count(len(moved), 'parameter')} moved in " + count(
        len(numbers), "step"
    )
    if still:
        return confirmed(figures, (f"below the resolution of their type so far: {listed(still)}",))
    return confirmed(figures)


def _low_precision(run: Run) -> list[Parameter]:
    return [
        parameter
        for rank in run.ranks
        for snapshot in first_snapshots(rank)
        for _, parameter in parameters(snapshot)
        if parameter.size < 4
    ]
