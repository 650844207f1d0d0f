from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine.facts.casts import late_casts
from fsdplint.engine.program import Program
from fsdplint.rule import Report


def cast_after_sharding(program: Program) -> Iterator[Report]:
    for fact in late_casts(program):
        cast, before, after = fact.cast.site, fact.before.site, fact.after.site
        wrap = program.text(fact.shard.site.path, fact.shard.call.func)
        yield Report(
            program.span(cast),
            f"`{program.text(cast.path, cast.node)}` comes after "
            f"`{program.text(before.path, before.node)}` {program.where(before, cast)}, in which "
            f"the units that `{wrap}` made settled on a dtype: the next forward fails",
            "the units keep their dtype",
            (
                program.evidence(fact.shard.site, "sharded here"),
                program.evidence(before, "the first forward"),
                program.evidence(after, "raises an exception"),
                *program.conditions(cast, fact.shard.site),
            ),
            partial(fixes.add_before.before_sharding, program, cast, fact.first),
        )
