from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine import ir
from fsdplint.engine.facts.preparation import PreparedApart, prepared_apart
from fsdplint.engine.places import common_frame, nodes_in_frame
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Fix
from fsdplint.fixes.declined import Declined
from fsdplint.rule import Report


def prepare_called_apart(program: Program) -> Iterator[Report]:
    for fact in prepared_apart(program):
        site = fact.alone.site
        assert isinstance(site.node, ir.Call)
        call = program.text(site.path, site.node.func)
        yield Report(
            program.span(site),
            f"`{call}` {_harm(fact)}",
            "without the other",
            _evidence(program, fact),
            partial(_fix, program, fact),
        )


def _harm(fact: PreparedApart) -> str:
    if fact.build is not None:
        return f"flattens the parameters that `{fact.build.label}` holds, and is not given it"
    return "raises ValueError: FSDP2 takes a model and its optimizer in one call"


def _evidence(program: Program, fact: PreparedApart) -> tuple[Evidence, ...]:
    built = () if fact.build is None else (program.evidence(fact.build.site, "built before"),)
    plugin = () if fact.plugin is None else (program.evidence(fact.plugin, "asks for FSDP"),)
    other = () if fact.other is None else (program.evidence(fact.other.site, "the other"),)
    return (*plugin, *built, *other, *program.conditions(fact.alone.site))


def _fix(program: Program, fact: PreparedApart) -> Fix | Declined:
    if fact.build is not None:
        return _built_later(program, fact)
    if fact.other is None:
        return Declined("the other is not prepared in this program")
    frame = common_frame(fact.alone.site, fact.other.site)
    if frame is None:
        return Declined("the two calls stand in functions that share no caller")
    path, *nodes = frame
    one, two = nodes
    if not isinstance(one, ir.Call) or not isinstance(two, ir.Call):
        return Declined("the two calls are not made one after the other")
    if one is not fact.alone.site.node or two is not fact.other.site.node:
        return Declined("the two calls stand in two functions")
    return fixes.prepare.prepare_together(fixes.code.Code.of(program.tree(path)), (one, two))


def _built_later(program: Program, fact: PreparedApart) -> Fix | Declined:
    assert fact.build is not None
    frame = common_frame(fact.build.site, fact.alone.site)
    if frame is None:
        return Declined("the optimizer and the call stand in functions that share no caller")
    path, built, prepared = frame
    if not isinstance(built, ir.Call):
        return Declined("the optimizer is built where its class is defined")
    captures = nodes_in_frame(fact.build.optimizer.captures, fact.build.site, built)
    return fixes.optimizer.build_after_sharding(
        fixes.code.Code.of(program.tree(path)), built, captures, prepared
    )
