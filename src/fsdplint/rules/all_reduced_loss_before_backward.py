from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine.facts.reduced_losses import ReducedLoss, reduced_losses
from fsdplint.engine.program import Program
from fsdplint.finding import Fix
from fsdplint.fixes.declined import Declined
from fsdplint.rule import Report


def all_reduced_loss_before_backward(program: Program) -> Iterator[Report]:
    for fact in reduced_losses(program):
        site, reduction, division = fact.backward.site, fact.reduction.site, fact.division
        divided = [] if division is None else [division.site]
        mean = [program.evidence(place, "and divided by their number") for place in divided]
        yield Report(
            program.span(site),
            f"`{program.text(site.path, site.node)}` is of a loss that "
            f"`{program.text(reduction.path, reduction.node)}` {program.where(reduction, site)} "
            "made the mean over the ranks; the gradients are averaged too, so they are divided by "
            "the number of ranks twice",
            "gradients too small by the number of ranks",
            (
                program.evidence(
                    reduction, "the mean over the ranks" if not mean else "added up over the ranks"
                ),
                *mean,
                program.evidence(fact.shard.site, "averages the gradients over the ranks"),
                *program.conditions(site, reduction, fact.shard.site),
            ),
            partial(_fix, program, fact),
        )


def _fix(program: Program, fact: ReducedLoss) -> Fix | Declined:
    site, reduction, division = fact.backward.site, fact.reduction.site, fact.division
    places = [reduction, *([] if division is None else [division.site])]
    if any((place.path, place.calls) != (site.path, site.calls) for place in places):
        return Declined("the loss is reduced in one function and its backward is in another")
    nodes = [place.node for place in places]
    return fixes.backward_first.backward_first(
        fixes.code.Code.of(program.tree(site.path)), site.node, nodes
    )
