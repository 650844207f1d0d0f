from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine.facts.inplace import changed_views
from fsdplint.engine.program import Program
from fsdplint.rule import Report


def inplace_on_sharded_output(program: Program) -> Iterator[Report]:
    for fact in changed_views(program):
        change, call, returned = fact.change, fact.call, fact.returned
        harm = (
            "no gradient is reduced, and the model does not train"
            if fact.alone
            else "the backward does not gather its parameters, and fails"
        )
        yield Report(
            program.span(change),
            f"`{program.text(change.path, change.node)}` changes the view that "
            f"`{program.text(call.path, call.node)}` returns, and takes the module's hook off the "
            f"graph: {harm}",
            "the hook that starts the unit's backward is lost",
            (
                program.evidence(call, "the output of a sharded module"),
                program.evidence(returned, "returned as a view"),
                program.evidence(fact.shard.site, "sharded here"),
                *program.conditions(call, fact.shard.site),
            ),
            partial(
                fixes.out_of_place.out_of_place,
                fixes.code.Code.of(program.tree(change.path)),
                change.node,
                call.node,
                fact.fresh,
            ),
        )
