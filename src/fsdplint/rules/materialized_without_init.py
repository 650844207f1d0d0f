from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine import ir
from fsdplint.engine.facts.buffers import undefined_buffers
from fsdplint.engine.facts.weights import UndefinedWeights, undefined_weights
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Fix
from fsdplint.fixes.declined import Declined
from fsdplint.rule import Report


def materialized_without_init(program: Program) -> Iterator[Report]:
    for fact in undefined_weights(program):
        site = fact.emptied.site
        assert isinstance(site.node, ir.Call)
        yield Report(
            program.span(site),
            f"`{program.text(site.path, site.node.func)}` leaves the weights undefined, and "
            f"nothing sets them before the forward {program.where(fact.forward.site, site)}",
            "memory as it was found",
            _evidence(program, fact),
            partial(_fix, program, fact),
        )
    for buffer in undefined_buffers(program):
        site, names = buffer.emptied.site, " and ".join(f"`{name}`" for name in buffer.names)
        registered = buffer.names.values()
        assert isinstance(site.node, ir.Call)
        yield Report(
            program.span(site),
            f"`{program.text(site.path, site.node.func)}` leaves {names} undefined: the load "
            f"{program.where(buffer.load, site)} does not set buffers that are not persistent",
            "buffers with memory as it was found",
            (
                *(program.evidence(p, "computed here and nowhere else") for p in registered),
                program.evidence(buffer.load, "sets parameters and persistent buffers only"),
                program.evidence(buffer.forward.site, "computes with what memory held"),
                *program.conditions(site, buffer.shard.site),
            ),
            lambda: Declined("only constructors compute these buffers"),
        )


def _evidence(program: Program, fact: UndefinedWeights) -> tuple[Evidence, ...]:
    whole = fact.whole
    made = () if whole.site is None else (program.evidence(whole.site, "the model is built"),)
    return (
        *made,
        program.evidence(fact.shard.site, "sharded here"),
        program.evidence(fact.forward.site, "computes with undefined weights"),
        *program.conditions(fact.emptied.site, fact.shard.site),
    )


def _fix(program: Program, fact: UndefinedWeights) -> Fix | Declined:
    site = fact.emptied.site
    assert isinstance(site.node, ir.Call)
    return fixes.initialise.initialise(
        fixes.code.Code.of(program.tree(site.path)), site.node, fact.whole
    )
