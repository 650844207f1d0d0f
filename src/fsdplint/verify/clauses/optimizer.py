"""What the optimizers hold, and whether it moves."""

from __future__ import annotations

from dataclasses import dataclass, field

from fsdplint.verify.clauses.clause import (
    Judgement,
    clause,
    confirmed,
    not_exercised,
    violated,
)
from fsdplint.verify.clauses.models import changes, first_snapshots, listed, parameters
from fsdplint.verify.events import OptimizerBuilt, Sharded, Step
from fsdplint.verify.evidence import Run
from fsdplint.verify.figures import plural


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
            f"`{first.cls}` holds {plural(len(first.stale), 'parameter')} that sharding has "
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
            f"{plural(len(missing), 'parameter')} with gradients held by no optimizer of torch's, "
            f"on purpose or not: {listed(missing)}"
        )
    names = sorted({event.cls for event in built if event.live})
    held = max(sum(event.live for event in rank.of(OptimizerBuilt)) for rank in run.ranks)
    return confirmed(
        f"{', '.join(f'`{name}`' for name in names)} hold{'s' * (len(names) == 1)} "
        f"{plural(held, 'parameter')} of the sharded model"
    )


def _missing(run: Run) -> list[str]:
    """Returns the parameters that get gradients on a rank and are in no optimizer there."""
    found: dict[str, None] = {}
    for rank in run.ranks:
        seen = [(s.model, p) for s in first_snapshots(rank) for _, p in parameters(s)]
        held = {(model, p.name) for model, p in seen if p.held}
        held |= {(change.model, change.name) for _, change in changes(rank) if change.held}
        for _, change in changes(rank):
            if change.gradient == "finite" and (change.model, change.name) not in held:
                found[change.name] = None
    return list(found)


@clause(
    "parameters-change",
    "A step changes the parameters that have gradients.",
    ("optimizer", "step"),
)
def parameters_change(run: Run) -> Judgement:
    """Only of parameters that an optimizer holds, at a learning rate that is not zero; early in a
    warmup the rate may be so low that nothing shows."""
    moves = _moves(run)
    if not moves.changed:
        return not_exercised("no held parameter had a gradient and a learning rate above zero")
    every = plural(len(moves.changed), "parameter")
    steps = plural(len(moves.steps), "step")
    still = [key for key, changed in moves.changed.items() if not changed]
    stuck = [key for key in still if key in moves.due]
    if stuck:
        return violated(
            f"{len(stuck)} of {every} with gradients did not change in {steps}: "
            f"{listed(name for _, name in stuck)}"
        )
    if len(still) == len(moves.changed):
        return not_exercised("the learning rate is too low so far for a step to show")
    figures = f"{len(moves.changed) - len(still)} of {every} moved in {steps}"
    low = f"steps below the resolution of their type so far: {listed(name for _, name in still)}"
    return confirmed(figures, (low,) if still else ())


@dataclass(slots=True)
class _Moves:
    """What the steps did to the held parameters with gradients, by model and name.

    Attributes:
        changed: whether any step changed it on any rank.
        due: those that some step must have changed.
        steps: the numbers of the steps.
    """

    changed: dict[tuple[int, str], bool] = field(default_factory=dict)
    due: set[tuple[int, str]] = field(default_factory=set)
    steps: set[int] = field(default_factory=set)


def _moves(run: Run) -> _Moves:
    made = _Moves()
    for rank in run.ranks:
        for step, change in changes(rank):
            if change.held and change.moving and change.gradient == "finite":
                key = change.model, change.name
                made.changed[key] = made.changed.get(key, False) or change.changed
                made.steps.add(step.number)
                if change.due:
                    made.due.add(key)
    return made
