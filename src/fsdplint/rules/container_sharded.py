from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine import ir
from fsdplint.engine.events import Shard
from fsdplint.engine.facts.containers import container_class, sharded_containers
from fsdplint.engine.program import Program
from fsdplint.engine.tree import Tree
from fsdplint.finding import Fix
from fsdplint.fixes.declined import Declined
from fsdplint.rule import Report


def container_sharded(program: Program) -> Iterator[Report]:
    for shard, name in sharded_containers(program):
        made = shard.module.site
        yield Report(
            program.span(shard.site),
            f"`{program.text(shard.site.path, shard.call)}` is given a `{name}`, which has no "
            "`forward` to gather parameters for",
            f"takes modules, and no `{name}`",
            (
                *([program.evidence(made, "made here")] if made is not None else []),
                *program.conditions(shard.site),
            ),
            partial(_fix, program, shard, name),
        )


def _fix(program: Program, shard: Shard, name: str) -> Fix | Declined:
    return fixes.container_loop.container_loop(
        fixes.code.Code.of(program.tree(shard.site.path)),
        shard.call,
        name == "ModuleDict",
        _is_always(program, shard, name),
    )


def _is_always(program: Program, shard: Shard, name: str) -> bool:
    """Whether what the call is given can be nothing but the container made at one place."""
    every = [s for t in program.traces for s in t.of(Shard) if s.call is shard.call]
    tree, made = program.tree(shard.site.path), shard.module.site
    holder = None if made is None else program.tree(made.path).parent(made.node)
    stated = isinstance(holder, ir.Assign) and made is not None and holder.value is made.node
    alike = all(container_class(each.module) == name for each in every)
    attribute = shard.module.step.removeprefix(".")
    once = (
        attribute == "" or sum(_assigns(t, attribute) for t in program.trees_with(attribute)) == 1
    )
    return stated and alike and once and tree.is_private()


def _assigns(tree: Tree, attribute: str) -> int:
    """How often a file assigns to an attribute of a name, whatever has it."""
    assigned = (node for node in tree.walk(attribute) if isinstance(node, ir.Assign))
    return sum(ir.last_name(target) == attribute for node in assigned for target in node.targets)
