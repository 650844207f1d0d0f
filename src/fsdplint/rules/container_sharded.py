from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine.events import Shard
from fsdplint.engine.facts.containers import sharded_containers
from fsdplint.engine.must.values import Known, Result, always
from fsdplint.engine.program import Program
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
    code = fixes.code.Code.of(program.tree(shard.site.path))
    given = fixes.shard_blocks.module_argument(shard.call)
    is_such = partial(_is_container, f"torch.nn.{name}")
    sure = given is not None and always(
        program, shard.site.path, given.value, code.statement(shard.call), is_such
    )
    return fixes.container_loop.container_loop(code, shard.call, name == "ModuleDict", sure)


def _is_container(name: str, value: Known) -> bool:
    return isinstance(value, Result) and value.name == name
