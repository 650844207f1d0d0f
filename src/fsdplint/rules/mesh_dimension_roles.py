"""`fully_shard` uses the dimensions of a mesh against their names."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.meshes import Mistake, Roles, mistaken_roles
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined
from fsdplint.fixes.mesh import flatten_mesh, slice_mesh, swap_dimensions, take_dimension
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD109",
    summary="`fully_shard` uses the dimensions of a mesh against their names",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
)


def reports(program: Program) -> Iterator[Report]:
    for fact in mistaken_roles(program):
        first, second = fact.names
        yield Report(
            program.span(fact.shard.site),
            "`fully_shard` uses mesh dimensions by position, not by name: it replicates over "
            f"`{first}` and shards over `{second}`, so memory and communication differ from what "
            "the names say",
            f"replicates over `{first}`, shards over `{second}`",
            (
                *([program.evidence(fact.made.site, "mesh is created here")] if fact.made else []),
                *program.conditions(fact.shard.site),
            ),
            partial(_fix, program, fact),
        )


def _fix(program: Program, fact: Roles) -> Fix | Declined:
    code = Code.of(program.tree(fact.shard.site.path))
    if fact.mistake is Mistake.BOTH:
        return flatten_mesh(code, fact.shard.call)
    if fact.mistake is Mistake.MODEL:
        take = slice_mesh if fact.made is not None else take_dimension
        return take(code, fact.shard.call, fact.wanted)
    if fact.made is None:
        return Declined("the order comes from a larger mesh; reorder its dimensions there by hand")
    node = fact.made.site.node
    assert isinstance(node, ir.Call)
    return swap_dimensions(Code.of(program.tree(fact.made.site.path)), node)
