"""A distributed sampler repeats the same order in every epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.feeding import SameOrder, same_orders
from fsdplint.engine.facts.training_loops import over
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.must import classes
from fsdplint.engine.must.definitions import UNBOUND
from fsdplint.engine.must.values import Instance, Known, Literal, Result, is_bound, possible
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Fix, Safety, Severity, Span
from fsdplint.fixes.code import Declined
from fsdplint.fixes.sampling import Asking, Epochs, epochs_of, set_epoch
from fsdplint.knowledge.data import ATTRIBUTES_BY_ARGUMENT, DISTRIBUTED_SAMPLERS, ONE_BY_ONE
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD802",
    summary="a distributed sampler repeats the same order in every epoch",
    severity=Severity.WARNING,
    fix=Safety.SAFE,
    since="0.1.0",
)


_COLLECTS = frozenset({"list", "tuple", "sorted"})
_HOLDERS = frozenset(attribute for _, attribute in ATTRIBUTES_BY_ARGUMENT)


def reports(program: Program) -> Iterator[Report]:
    for fact in same_orders(program):
        site = fact.sampler
        assert isinstance(site.node, ir.Call)
        yield Report(
            program.span(site),
            f"`set_epoch` is never called, so `{program.text(site.path, site.node.func)}` yields "
            f"the same order {_when(program, fact)}",
            "always shuffles as in epoch 0",
            _evidence(fact),
            partial(_fix, program, fact),
        )


def _when(program: Program, fact: SameOrder) -> str:
    site, begun = fact.sampler, fact.training.loop.site
    if fact.epochs is None:
        again = program.text(begun.path, begun.node)
        return f"each time `{again}` {program.where(begun, site)} starts over"
    path, loop = fact.epochs
    return f"in every pass of the loop {program.where(Site(path, loop), site)}"


def _evidence(fact: SameOrder) -> tuple[Evidence, ...]:
    if fact.epochs is None:
        return (Evidence(over(fact.training.loop), "same order in every epoch"),)
    path, loop = fact.epochs
    head = loop.iterable if isinstance(loop, ir.For) else loop.test
    return (
        Evidence(Span(path, head.start, head.end), "loop over epochs"),
        Evidence(over(fact.training.loop), "same order in every epoch"),
    )


def _fix(program: Program, fact: SameOrder) -> Fix | Declined:
    epochs = epochs_of(program, fact.training, fact.holder, fact.sampler)
    if isinstance(epochs, Declined):
        return epochs
    if (batches := _drawn_once(program, fact)) is not None:
        return Declined(
            f"`{batches}` holds batches drawn once, before the epochs; iterate over the loader in "
            "each epoch by hand"
        )
    return set_epoch(_asked(program, epochs))


def _drawn_once(program: Program, fact: SameOrder) -> str | None:
    """Return the list of batches that every epoch iterates over, None if it is a loader."""
    inner = fact.training.loop.site
    if not isinstance(inner.node, ir.For):
        return None
    tree, meant = program.tree(inner.path), inner.node.iterable
    while isinstance(meant, ir.Call) and ir.last_name(meant.func) in ONE_BY_ONE and meant.args:
        meant = meant.args[0].value
    meant = tree.meaning(meant)
    collected = isinstance(meant, ir.Call) and ir.last_name(meant.func) in _COLLECTS
    listed = collected or isinstance(meant, (ir.Comprehension, ir.Collection))
    return program.text(inner.path, inner.node.iterable) if listed else None


def _asked(program: Program, epochs: Epochs) -> Epochs:
    """Return the fix with the test that makes it safe wherever the loop runs, if there is one."""
    asking = Asking
    path, at = epochs.code.path, epochs.first
    values = possible(program, path, epochs.sampler, at)
    if values and all(_is_distributed(program, each) for each in values):
        return epochs
    owner, _, attribute = epochs.sampler.rpartition(".")
    if values and UNBOUND not in values:
        others = [each for each in values if not _is_distributed(program, each)]
        only_none = all(each == Literal(None) for each in others)
        return replace(epochs, asking=asking.NONE if only_none else asking.CLASS)
    if attribute in _HOLDERS and owner and is_bound(program, path, owner, at):
        return replace(epochs, asking=asking.ATTRIBUTE)
    if is_bound(program, path, epochs.sampler, at):
        return replace(epochs, asking=asking.CLASS)
    return replace(epochs, asking=asking.CLASS, safety=Safety.UNSAFE)


def _is_distributed(program: Program, value: Known) -> bool:
    if isinstance(value, Instance):
        bases = classes.lineage(program, value.cls)
        return bases is not None and not DISTRIBUTED_SAMPLERS.isdisjoint(bases[1])
    return isinstance(value, Result) and value.name in DISTRIBUTED_SAMPLERS
