from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine.facts.dcp_loads import Entry, LostLoad, Why, lost_loads
from fsdplint.engine.program import Program
from fsdplint.knowledge.calls import Generation
from fsdplint.rule import Report


def fresh_optimizer_in_dcp_load(program: Program) -> Iterator[Report]:
    for fact in lost_loads(program):
        site = fact.call.site
        yield Report(
            program.span(site),
            _message(program, fact),
            "loads no optimizer state" if fact.why is Why.FRESH else "what this loads is lost",
            (
                program.evidence(fact.shard.site, "the parameters are sharded"),
                *(
                    program.evidence(entry.given.site, _note(entry, fact))
                    for entry in fact.entries
                    if entry.given is not None
                ),
                *program.conditions(site, fact.shard.site),
            ),
            partial(fixes.dcp_load.give_back, program, fact),
        )


def _message(program: Program, fact: LostLoad) -> str:
    entry = fact.entries[0]
    if fact.why is Why.FRESH:
        return (
            "the optimizer has taken no step and has no state yet, so this load asks the "
            "checkpoint for none: its moments are not restored"
        )
    assert entry.given is not None  # a copy is what a call gave
    given = program.text(entry.given.site.path, entry.given.site.node)
    return f"this loads into the copy that `{given}` gives, and nothing gives it back"


def _note(entry: Entry, fact: LostLoad) -> str:
    if entry.raw and fact.why is Why.FRESH:
        return "no state is named here before the first step"
    flat = fact.shard.generation is Generation.FSDP1
    return "a copy under FSDP1" if flat else "a gathered copy"
