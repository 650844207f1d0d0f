"""Whether steps train: forwards run hooks, gradients are reduced, optimizers change the model."""

from __future__ import annotations

import re
from collections import Counter

from fsdplint.verify.clauses.clause import clause, confirmed, not_exercised, violated
from fsdplint.verify.clauses.queries import (
    CLIPPING_OR_STEP,
    MIXED,
    changes,
    crashes,
    first_snapshots,
    inside,
    is_shard,
    listed,
    own_place,
    parameters,
    refusals,
    unit_frame,
    without_steps,
)
from fsdplint.verify.events import (
    Backward,
    Bypass,
    Change,
    Ended,
    Forward,
    OptimizerBuilt,
    Parameter,
    Place,
    Sharded,
    Snapshot,
    Stale,
    Step,
    SyncSwitched,
)
from fsdplint.verify.evidence import RankRun, Run
from fsdplint.verify.figures import percent, plural
from fsdplint.verify.verdict import Verdict

_OF_WEIGHTS = re.compile(r"aten\.\w*(mm|linear|embedding|convolution|conv\dd|_norm)\b")
"""Operators, as the error names them, that take a weight where they take a DTensor."""
Key = tuple[int, str]
"""A parameter: its model's number and its name there."""
_NO_SYNC = "no_sync"
_INSIDE = "run the backward pass inside `no_sync`, too: FSDP1 decides during it whether to reduce"
_MANY = 0.5
"""Share of the elements from which it is reported that they do not change."""
_SHARDING = ("sharding", "resharding")
"""Causes that replace parameters without a call in the script."""


@clause(
    "forward",
    "Every forward of an FSDP unit runs the unit's hooks.",
    ("forward", "calls", "sharding"),
)
def forward(run: Run) -> Verdict:
    """Judge forwards: a direct ``.forward`` or other method uses parameters still sharded."""
    bypasses = [event for _, event in run.all(Bypass)]
    if bypasses:
        first = bypasses[0]
        who = first.unit or first.cls
        return violated(
            f"`{who}.{first.method}` bypasses the unit's FSDP hooks "
            f"({plural(len(bypasses), 'time')})",
            _error(run),
            tuple(event.place for event in bypasses),
        )
    mixed = [e for _, e in crashes(run, MIXED) if not inside(e, CLIPPING_OR_STEP)]
    if mixed and (figures := _mixed(run, mixed[0])):
        return violated(figures, _error(run), (own_place(mixed[0]),))
    if mixed:
        return not_exercised(
            "an operation mixed a DTensor and a plain tensor; the DTensor may belong to no unit"
        )
    if not run.all(Sharded):
        return not_exercised("no module was sharded")
    forwards = [event for _, event in run.all(Forward)]
    if not forwards:
        return not_exercised("no sharded module was called")
    # Under activation checkpointing a block is called again, by backward, with nothing around it.
    models = {s.cls for _, s in run.all(Snapshot)} & {f.cls for f in forwards}
    names = models or {forwards[0].cls}
    return confirmed(f"{', '.join(f'`{name}`' for name in sorted(names))} called through the hooks")


def _mixed(run: Run, ended: Ended) -> str:
    """Describe what a crash shows; empty if the DTensor may not be a sharded parameter.

    It may be one of tensor parallelism's, or a norm, which meets a plain tensor in arithmetic.
    """
    if any(_tensor_parallel(p) for _, s in run.all(Snapshot) for _, p in parameters(s)):
        return ""
    frame = unit_frame(ended)
    if frame is None:
        used = _OF_WEIGHTS.search(ended.message)
        return "sharded parameters were used outside their unit's forward" if used else ""
    name = f"{frame.receiver.removeprefix('FSDP')}.{frame.place.function}"
    return f"`{name}` bypasses the unit's FSDP hooks and uses sharded parameters"


def _tensor_parallel(parameter: Parameter) -> bool:
    """True if more than FSDP divides it, which shards along its mesh's last dimension."""
    shards = [is_shard(placement) for placement in parameter.placements]
    return sum(shards) > 1 or not all(shards[-1:])


def _error(run: Run) -> tuple[str, ...]:
    found = [ended for _, ended in crashes(run, MIXED)]
    return (f"{found[0].kind}: {found[0].message.splitlines()[0]}",) if found else ()


@clause(
    "gradients",
    "Gradients are reduced over the ranks before the optimizer uses them.",
    ("gradients", "optimizer", "step"),
)
def gradients(run: Run) -> Verdict:
    """Judge reductions: the optimizer never sees a gradient that FSDP2 has not reduced."""
    if reason := without_steps(run):
        return not_exercised(reason)
    known = [
        (step, change)
        for rank in run.ranks
        for step, change in changes(rank)
        if step.backwards and change.held and change.reduced is not None
    ]
    waiting = [(step, change) for step, change in known if not change.reduced]
    if waiting:
        steps = sorted({step.number for step, _ in waiting})
        names = listed(change.name for _, change in waiting)
        return violated(
            f"the gradients of {_names(waiting)} are not reduced at step {steps[0]}",
            (f"not reduced in {plural(len(steps), 'step')}: {names}",),
            (*_switched_off(run), *(step.place for step, _ in waiting)),
        )
    if not known:
        return not_exercised("no optimizer with sharded parameters stepped after a backward pass")
    if all(change.gradient == "none" for _, change in known):
        return not_exercised("no parameter in an optimizer had a gradient")
    done = len({step.number for step, _ in known})
    return confirmed(
        f"gradients reduced before {f'each of {done} steps' if done > 1 else 'the step'}"
    )


def _names(waiting: list[tuple[Step, Change]]) -> str:
    first = waiting[0][0].number
    names = {(change.model, change.name) for step, change in waiting if step.number == first}
    return plural(len(names), "parameter")


def _switched_off(run: Run) -> tuple[Place | None, ...]:
    return tuple(event.place for _, event in run.all(SyncSwitched) if not event.on)


@clause(
    "accumulation",
    "Where the script turns off gradient synchronization, gradients are reduced once per step.",
    ("gradients", "step"),
)
def accumulation(run: Run) -> Verdict:
    """Judge accumulation: FSDP2 modules have no `no_sync`, and a guarded call has no effect."""
    refused = [ended for name, ended in refusals(run) if name == _NO_SYNC]
    if refused:
        ended = refused[0]
        return violated(
            "the script uses `no_sync`, which FSDP2 modules do not have",
            (f"{ended.kind}: {ended.message}",),
            (own_place(ended),),
        )
    several = [step for _, step in run.all(Step) if step.backwards > 1 and step.changes]
    if not several:
        return not_exercised(without_steps(run) or "one backward pass per step")
    most = max(several, key=lambda step: step.reduced)
    figures = f"{most.backwards} backward passes per step, {most.reduced or 'none'} of them reduced"
    asked = [e for _, e in run.all(SyncSwitched) if e.name == _NO_SYNC and not e.on]
    if most.reduced == most.backwards and asked:
        return violated(
            f"{figures}, although the script uses `no_sync`",
            (),
            tuple(event.place for event in asked),
            _INSIDE if any(made.api == "fsdp1" for _, made in run.all(Sharded)) else "",
        )
    if not most.reduced:
        return not_exercised(f"{figures} (see `gradients`)")
    if most.reduced > 1:
        return not_exercised(f"{figures}: correct, but with {most.reduced} times the communication")
    return confirmed(figures)


@clause(
    "optimizer",
    "The optimizers hold all trained parameters of the sharded model.",
    ("sharding", "optimizer", "step", "snapshot"),
)
def optimizer(run: Run) -> Verdict:
    """Judge what optimizers hold: one built before sharding steps parameters no longer in use."""
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
        return _stale(run, stale[0])
    missing = _missing(run)
    live = max(event.live for event in built)
    if not live:
        return not_exercised("no optimizer holds a parameter of a sharded model")
    if missing:  # on purpose, as where a head is trained alone, or by an optimizer not of torch's
        return not_exercised(
            f"{plural(len(missing), 'parameter')} with gradients in no `torch.optim` optimizer, "
            f"which may be intended: {listed(missing)}"
        )
    names = sorted({event.cls for event in built if event.live})
    held = max(sum(event.live for event in rank.of(OptimizerBuilt)) for rank in run.ranks)
    return confirmed(
        f"{', '.join(f'`{name}`' for name in names)} hold{'s' * (len(names) == 1)} "
        f"{plural(held, 'parameter')} of the sharded model"
    )


def _stale(run: Run, event: OptimizerBuilt) -> Verdict:
    """Judge an optimizer of replaced parameters, by what replaced them."""
    by: dict[str, list[Stale]] = {}
    for each in event.stale:
        by.setdefault(each.by, []).append(each)
    sharding = any(how in _SHARDING for how in by)
    return violated(
        f"`{event.cls}` holds {plural(len(event.stale), 'parameter')} that "
        f"{' and '.join(map(_replacer, by))} replaced and {event.live} current ones: it does not "
        f"train the replacement{'s'[: len(event.stale) != 1]}",
        tuple(
            f"replaced{f' by {_replacer(how)}' * (len(by) > 1)}: {listed(p.name for p in found)}"
            for how, found in by.items()
        ),
        (
            event.place,
            *(each.place for each in event.stale if each.by not in _SHARDING),
            *(made.place for _, made in run.all(Sharded) if sharding),
        ),
    )


def _replacer(how: str) -> str:
    if how == "assignment":
        return "an assignment"
    return how if how in _SHARDING else f"`{how}`"


def _missing(run: Run) -> list[str]:
    """Return the parameters that get gradients on a rank and are in no optimizer there."""
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
    "All ranks take the same steps, and steps change the parameters that have gradients.",
    ("optimizer", "step"),
)
def parameters_change(run: Run) -> Verdict:
    """Judge the parameters that an optimizer holds at a non-zero learning rate; early in a warmup
    the rate may be too low for a visible change."""
    if apart := _stepped_apart(run):
        return apart
    changed, due, numbers = _moves(run)
    if not changed and (bad := _not_finite(run)):
        return not_exercised(
            f"the gradients of {plural(len(bad), 'parameter')} are NaN or infinite: {listed(bad)}"
        )
    if not changed:
        return not_exercised(
            "no parameter in an optimizer had a gradient and a learning rate above 0"
        )
    every, steps = plural(len(changed), "parameter"), plural(len(numbers), "step")
    still = [key for key, moved in changed.items() if not moved]
    stuck = [key for key in still if key in due]
    if stuck:
        return violated(
            f"{len(stuck)} of {every} with gradients did not change in {steps}: "
            f"{listed(name for _, name in stuck)}"
        )
    if len(still) == len(changed):
        too_low = "the learning rate is too low so far for a visible change"
        return not_exercised(f"{too_low}{_unmoved(run)}")
    figures = f"{len(changed) - len(still)} of {every} changed in {steps}"
    figures += _without_gradients(run) + _unmoved(run)
    low = f"steps are below the resolution of the dtype so far: {listed(name for _, name in still)}"
    return confirmed(figures, (low,) if still else ())


def _without_gradients(run: Run) -> str:
    """Describe held parameters whose gradients are zero in every step on every rank."""
    seen: dict[Key, set[str]] = {}
    for rank in run.ranks:
        for _, change in changes(rank):
            if change.held:
                seen.setdefault((change.model, change.name), set()).add(change.gradient)
    number = sum(found == {"zero"} for found in seen.values())
    return f"; the gradients of {number} more are zero" if number else ""


def _unmoved(run: Run) -> str:
    """Describe what share of the elements in a 16-bit dtype the steps leave unchanged.

    It need not be wrong: some optimizers keep their own float32 weights.
    """
    found = [
        change for rank in run.ranks for _, change in changes(rank) if change.held and change.moving
    ]
    coarse = sum(change.coarse for change in found)
    still = sum(change.still for change in found)
    if still <= _MANY * coarse:
        return ""
    return (
        f"; {percent(still / coarse)} of the elements with a gradient did not change: their steps "
        "are too small for a 16-bit dtype"
    )


def _stepped_apart(run: Run) -> Verdict | None:
    """Judge whether ranks with the same number of backward passes took the same number of steps.

    A `GradScaler` that sees only this rank's shards skips steps on this rank only, for example.
    """
    if not all(rank.ended and rank.ended.how == "script" for rank in run.ranks):
        return None
    if len({len(rank.of(Backward)) for rank in run.ranks}) > 1:
        return None
    built = {rank.rank: _of_models(rank) for rank in run.ranks}
    if len({len(numbers) for numbers in built.values()}) > 1:
        return None
    counts = {rank.rank: Counter(step.optimizer for step in rank.of(Step)) for rank in run.ranks}
    for numbers in zip(*built.values(), strict=True):
        each = dict(zip(built, numbers, strict=True))
        steps = {rank: counts[rank][number] for rank, number in each.items()}
        if len(set(steps.values())) > 1:
            most, least = max(steps, key=lambda r: steps[r]), min(steps, key=lambda r: steps[r])
            found = (s.place for r, s in run.all(Step) if s.optimizer == each[r])
            place = next(found, None)
            return violated(
                f"rank {most} took {plural(steps[most], 'optimizer step')} and rank {least} took "
                f"{steps[least] or 'none'}, after the same number of backward passes",
                (),
                (place,),
            )
    return None


def _of_models(rank: RankRun) -> list[int]:
    """Return the numbers of the optimizers that hold parameters of sharded models."""
    return sorted({event.number for event in rank.of(OptimizerBuilt) if event.live})


def _not_finite(run: Run) -> list[str]:
    """Return the held parameters whose gradients are not finite on some rank."""
    found = (
        change.name
        for rank in run.ranks
        for _, change in changes(rank)
        if change.held and change.gradient == "infinite"
    )
    return list(dict.fromkeys(found))


def _moves(run: Run) -> tuple[dict[Key, bool], set[Key], set[int]]:
    """Return what the steps did to the held parameters with gradients.

    Whether any step changed each of them on any rank, those that some step must have changed, and
    the numbers of the steps.
    """
    changed: dict[Key, bool] = {}
    due: set[Key] = set()
    steps: set[int] = set()
    for rank in run.ranks:
        for step, change in changes(rank):
            if change.held and change.moving and change.gradient == "finite":
                key = change.model, change.name
                changed[key] = changed.get(key, False) or change.changed
                steps.add(step.number)
                if change.due:
                    due.add(key)
    return changed, due, steps
