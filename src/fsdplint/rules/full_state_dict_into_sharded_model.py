"""Full state dicts that are loaded directly into a model that FSDP2 shards."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.sharding import as_state
from fsdplint.engine.facts.state_files import plain_loads
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.program import Program
from fsdplint.finding import Safety, Severity
from fsdplint.fixes.load_state import whole_load
from fsdplint.knowledge.calls import READS_NO_DTENSORS
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD503",
    summary="a full state dict is loaded directly into a model that FSDP2 shards",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="it has no correct finding on public code so far.",
)


def reports(program: Program) -> Iterator[Report]:
    for fact in plain_loads(program):
        site, read = fact.call.site, fact.file.site
        if fact.optimizer is not None or read is None:
            continue
        sharded = as_state(program, fact.shard, site)
        call = site.node.func if isinstance(site.node, ir.Call) else site.node
        yield Report(
            program.span(site),
            f"`{program.text(site.path, call)}` {_harm(program, read)}: "
            f"the model's parameters are DTensors ({sharded})",
            "parameters are DTensors here",
            (
                program.evidence(fact.shard.site, "parameters become DTensor shards here"),
                program.evidence(read, "reads the state dict"),
                *program.conditions(site, fact.shard.site),
            ),
            partial(whole_load, program, fact),
        )


def _harm(program: Program, read: Site) -> str:
    """Return what a load does; a pickled file may hold DTensors, with which it works."""
    text = f"`{program.text(read.path, read.node)}`"
    called = read.node.func if isinstance(read.node, ir.Call) else None
    name = program.project.library_name(read.path, called) if called is not None else ""
    if name in READS_NO_DTENSORS:
        return f"crashes on the plain tensors that {text} returns"
    return f"crashes if {text} returns plain tensors"
