from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine.facts.repeats import Repeat, repeats
from fsdplint.engine.program import Program
from fsdplint.finding import Fix
from fsdplint.fixes.declined import Declined
from fsdplint.rule import Report


def sharded_twice(program: Program) -> Iterator[Report]:
    for fact in repeats(program):
        again = fact.again.site
        yield Report(
            program.span(again),
            f"`{program.text(again.path, fact.again.call)}` shards a module that is sharded "
            f"{program.where(fact.first.site, again)} already",
            "raises",
            (
                program.evidence(fact.first.site, "shards it first"),
                *program.conditions(fact.first.site, again),
            ),
            partial(_fix, program, fact),
        )


def _fix(program: Program, fact: Repeat) -> Fix | Declined:
    first, again = fact.first, fact.again
    if first.call is again.call:
        return Declined("one call shards both times")
    if first.listed or again.listed:
        return Declined("the module is in a list of modules that are sharded together")
    code = fixes.code.Code.of(program.tree(again.site.path))
    theirs = fixes.code.Code.of(program.tree(first.site.path))
    given = [theirs.slice(each.value) for each in first.call.args[1:]]
    if given != [code.slice(each.value) for each in again.call.args[1:]]:
        return Declined("the two calls have different arguments")
    return fixes.shard_once.shard_once(code, again.call)
