"""Gradients are reduced before they are used, and not more often than the script asks for."""

from __future__ import annotations

from fsdplint.verify.clauses.clause import (
    Judgement,
    clause,
    confirmed,
    not_exercised,
    violated,
)
from fsdplint.verify.clauses.crash import own_place, refusals
from fsdplint.verify.clauses.models import changes, listed, without_steps
from fsdplint.verify.events import Change, Place, Step, SyncSwitched
from fsdplint.verify.evidence import Run
from fsdplint.verify.figures import plural

_NO_SYNC = "no_sync"


@clause(
    "gradients",
    "The gradients that a step uses have been reduced over the ranks.",
    ("gradients", "optimizer", "step"),
)
def gradients(run: Run) -> Judgement:
    """FSDP2 keeps an unreduced gradient beside the sharded parameter, where no optimizer looks."""
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
        return violated(
            f"at step {steps[0]} the gradients of {_names(waiting)} wait to be reduced",
            (f"in {plural(len(steps), 'step')}: {listed(change.name for _, change in waiting)}",),
            (*_switched_off(run), *(step.place for step, _ in waiting)),
        )
    if not known:
        return not_exercised("no optimizer that holds sharded parameters stepped after a backward")
    if all(change.gradient == "none" for _, change in known):
        return not_exercised("no held parameter had a gradient")
    done = len({step.number for step, _ in known})
    return confirmed(f"reduced before {f'each of {done} steps' if done > 1 else 'the step'}")


def _names(waiting: list[tuple[Step, Change]]) -> str:
    first = waiting[0][0].number
    return plural(sum(step.number == first for step, _ in waiting), "parameter")


def _switched_off(run: Run) -> tuple[Place | None, ...]:
    return tuple(event.place for _, event in run.all(SyncSwitched) if not event.on)


@clause(
    "accumulation",
    "Micro-batches of one step are reduced once, where the script asks for that.",
    ("gradients", "step"),
)
def accumulation(run: Run) -> Judgement:
    """`no_sync` is FSDP1's: an FSDP2 module has none, and a guard makes nothing of it."""
    refused = [ended for name, ended in refusals(run) if name == _NO_SYNC]
    if refused:
        ended = refused[0]
        return violated(
            "FSDP2 modules have no `no_sync`; the script asks for it",
            (f"{ended.kind}: {ended.message}",),
            (own_place(ended),),
        )
    several = [step for _, step in run.all(Step) if step.backwards > 1 and step.changes]
    if not several:
        return not_exercised(without_steps(run) or "one backward a step")
    most = max(several, key=lambda step: step.reduced)
    figures = f"{most.backwards} backwards a step, {most.reduced} of them reduced"
    asked = [e for _, e in run.all(SyncSwitched) if e.name == _NO_SYNC and not e.on]
    if most.reduced == most.backwards and asked:
        return violated(
            f"{figures}, though the script asks for `no_sync`",
            (),
            tuple(event.place for event in asked),
        )
    if not most.reduced:
        return not_exercised(f"{most.backwards} backwards a step, none reduced: see gradients")
    if most.reduced > 1:
        return not_exercised(f"{figures}: right, at {most.reduced} times the communication")
    return confirmed(figures)
