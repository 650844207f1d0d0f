from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine import ir
from fsdplint.engine.facts.feeding import SameOrder, loader_name, same_orders
from fsdplint.engine.places import name_in
from fsdplint.engine.program import Program
from fsdplint.engine.site import Site
from fsdplint.finding import Evidence, Fix, Span
from fsdplint.fixes.declined import Declined
from fsdplint.rule import Report


def epoch_not_set(program: Program) -> Iterator[Report]:
    for fact in same_orders(program):
        site = fact.sampler.site
        assert isinstance(site.node, ir.Call)
        path, loop = fact.epochs
        where = program.where(Site(path, loop), site)
        yield Report(
            program.span(site),
            f"`{program.text(site.path, site.node.func)}` shuffles alike in every pass of the loop "
            f"{where}: nothing calls its `set_epoch`",
            "shuffles by its seed and epoch 0",
            _evidence(fact),
            partial(_fix, program, fact),
        )


def _evidence(fact: SameOrder) -> tuple[Evidence, ...]:
    path, loop = fact.epochs
    head = loop.iterable if isinstance(loop, ir.For) else loop.test
    inner = fact.training.loop.site
    assert isinstance(inner.node, ir.For)
    over = inner.node.iterable
    return (
        Evidence(Span(path, head.start, head.end), "the epochs"),
        Evidence(Span(inner.path, over.start, over.end), "the same order each time"),
    )


def _fix(program: Program, fact: SameOrder) -> Fix | Declined:
    path, loop = fact.epochs
    name = name_in(program, fact.sampler.site, path, loop)
    if name is not None and isinstance(loop, ir.For):
        return fixes.sampling.set_epoch(
            fixes.sampling.Epochs(fixes.code.Code.of(program.tree(path)), loop, name)
        )
    code = fixes.code.Code.of(program.tree(path))
    epochs = fixes.sampling.epochs_of(code, loop, loader_name(program, fact.training, fact.epochs))
    return epochs if isinstance(epochs, Declined) else fixes.sampling.set_epoch(epochs)
