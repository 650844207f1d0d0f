"""A plain state dict is loaded into a model that FSDP2 has sharded."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine.facts.sharding import as_state
from fsdplint.engine.facts.state_files import plain_loads
from fsdplint.engine.program import Program
from fsdplint.finding import Safety, Severity
from fsdplint.fixes.load_state import whole_load
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD503",
    summary="a plain state dict is loaded into a model that FSDP2 has sharded",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="its one finding on real code was wrong, which is mended; none was right yet.",
)


def reports(program: Program) -> Iterator[Report]:
    for fact in plain_loads(program):
        site, read = fact.call.site, fact.file.site
        if fact.optimizer is not None or read is None:
            continue
        state = as_state(program, fact.shard, site, "already sharded")
        yield Report(
            program.span(site),
            f"this loads what `{program.text(read.path, read.node)}` reads into a model that is "
            f"{state}: plain tensors do not fit its DTensors",
            "the parameters are DTensors here",
            (
                program.evidence(fact.shard.site, "the parameters become DTensor shards"),
                program.evidence(read, "read as it is in the file"),
                *program.conditions(site, fact.shard.site),
            ),
            partial(whole_load, program, fact),
        )
