from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine.facts.class_checks import class_checks
from fsdplint.engine.program import Program
from fsdplint.rule import Report


def checkpointing_matches_nothing(program: Program) -> Iterator[Report]:
    for fact in class_checks(program):
        check, shard = fact.check, fact.shard.site
        name = fact.names[0]
        yield Report(
            program.span(check),
            f"`{program.text(check.path, check.node)}` is false for every `{name}`, of which "
            f"`{program.text(shard.path, fact.shard.call.func)}` makes an `FSDP{name}` "
            f"{program.where(shard, check)}: nothing is checkpointed",
            "matches nothing",
            (
                program.evidence(shard, "exchanges the class of what it shards"),
                program.evidence(fact.call.site, "runs behind that"),
                *program.conditions(fact.call.site, shard),
            ),
            partial(
                fixes.isinstance_check.ask_instance,
                fixes.code.Code.of(program.tree(check.path)),
                check.node,
                fact.subject,
                fact.classes,
                fact.names if fact.by_name else None,
                fact.final,
            ),
        )
