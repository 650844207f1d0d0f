from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine.facts.fully_shard_arguments import ForeignArguments, foreign_arguments
from fsdplint.engine.program import Program
from fsdplint.finding import Evidence, Fix, Span
from fsdplint.fixes.declined import Declined
from fsdplint.knowledge.fully_shard import SINCE
from fsdplint.rule import Report


def fsdp1_argument_to_fully_shard(program: Program) -> Iterator[Report]:
    for fact in foreign_arguments(program):
        shard = fact.shard
        yield Report(
            program.span(shard.site),
            _message(program, fact),
            "raises a TypeError",
            (*_places(fact), *program.conditions(shard.site)),
            partial(_fix, program, fact),
        )


def _message(program: Program, fact: ForeignArguments) -> str:
    function = f"`{program.text(fact.shard.site.path, fact.shard.call.func)}`"
    if fact.names:
        *others, last = [f"`{name}`" for name in fact.names]
        names = f"{', '.join(others)} or {last}" if others else last
        return f"{function} has no argument {names} as FSDP1 has"
    if fact.positional:
        return f"{function} takes nothing but the module by position"
    name = fact.late[0]
    since = ".".join(map(str, SINCE[name][:2]))
    return f"{function} has `{name}` since torch {since}, and the code is meant for older releases"


def _places(fact: ForeignArguments) -> Iterator[Evidence]:
    wrong = {*fact.names, *fact.late}
    for argument in fact.shard.call.args:
        if argument.keyword in wrong:
            span = Span(fact.shard.site.path, argument.start, argument.end)
            yield Evidence(span, f"`{argument.keyword}` is given here")


def _fix(program: Program, fact: ForeignArguments) -> Fix | Declined:
    if fact.late:
        return Declined(f"there is nothing like `{fact.late[0]}` in the releases before")
    code = fixes.code.Code.of(program.tree(fact.shard.site.path))
    return fixes.fully_shard_call.pass_own_arguments(code, fact.shard.call, fact.blocks_sharded)
