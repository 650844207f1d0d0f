"""States that FSDP1 gathers under `if rank == 0:`, where the job hangs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fsdplint.finding import Fix
from fsdplint.fixes.optimizer_loads import CONVERTS
from fsdplint.fixes.state_calls import TAKES
from fsdplint.migrate.fsdp2.state_calls import METHODS
from fsdplint.migrate.step import Change, Context, Found
from fsdplint.rules.collective_under_rank_guard import missed_collectives, on_every_rank


def on_all_ranks(context: Context) -> Iterator[Found]:
    """Yield a change for each call that takes or loads a state on some ranks only."""
    traces = (*context.program.traces, *context.program.method_traces)
    program = replace(context.program, traces=traces)
    facts = list(missed_collectives(program))
    for fact in facts:
        call = fact.collective.call
        fix = on_every_rank(program, fact, facts)
        if call.name in (*METHODS, *TAKES, *CONVERTS) and isinstance(fix, Fix):
            yield Change(program.span(call.site), fix.title, fix.edits)
