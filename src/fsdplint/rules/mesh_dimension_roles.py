from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine import ir
from fsdplint.engine.facts.meshes import Roles, mistaken_roles
from fsdplint.engine.program import Program
from fsdplint.finding import Fix
from fsdplint.fixes.declined import Declined
from fsdplint.rule import Report


def mesh_dimension_roles(program: Program) -> Iterator[Report]:
    for fact in mistaken_roles(program):
        first, second = fact.names
        yield Report(
            program.span(fact.shard.site),
            f"`fully_shard` replicates over the first dimension of a mesh, `{first}`, and shards "
            f"over the second, `{second}`: it goes by their places and not by their names",
            f"shards over `{second}`",
            (
                program.evidence(fact.made.site, "the mesh is made here"),
                *program.conditions(fact.shard.site),
            ),
            partial(_fix, program, fact),
        )


def _fix(program: Program, fact: Roles) -> Fix | Declined:
    if fact.wanted:
        code = fixes.code.Code.of(program.tree(fact.shard.site.path))
        return fixes.mesh.slice_mesh(code, fact.shard.call, fact.wanted)
    node = fact.made.site.node
    assert isinstance(node, ir.Call)
    return fixes.mesh.swap_dimensions(fixes.code.Code.of(program.tree(fact.made.site.path)), node)
