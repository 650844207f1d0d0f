"""A mesh's dimensions are used for something else than their names say."""

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
    summary="a mesh's dimensions are used for something else than their names say",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
)


def reports(program: Program) -> Iterator[Report]:
    for fact in mistaken_roles(program):
        first, second = fact.names
        yield Report(
            program.span(fact.shard.site),
            f"`fully_shard` replicates over the first dimension of a mesh, `{first}`, and shards "
            f"over the second, `{second}`: it goes by their places and not by their names",
            f"shards over `{second}`",
            (
                *([program.evidence(fact.made.site, "the mesh is made here")] if fact.made else []),
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
        return Declined("the mesh has its dimensions in this order: reorder them where it is made")
    node = fact.made.site.node
    assert isinstance(node, ir.Call)
    return swap_dimensions(Code.of(program.tree(fact.made.site.path)), node)
