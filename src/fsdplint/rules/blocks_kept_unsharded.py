"""All blocks stay gathered from the forward to the backward."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine.facts.resharding import kept_blocks
from fsdplint.engine.program import Program
from fsdplint.finding import Safety, Severity
from fsdplint.fixes.arguments import drop_argument
from fsdplint.fixes.code import Code
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD404",
    summary="all blocks stay gathered from the forward to the backward",
    severity=Severity.NOTE,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="it is a choice between memory and communication.",
)


def reports(program: Program) -> Iterator[Report]:
    for shard, root in kept_blocks(program):
        yield Report(
            program.span(shard.site),
            "`reshard_after_forward=False` on every block keeps the whole model's parameters on "
            "each rank from the forward to the backward",
            "stays gathered",
            (program.evidence(root.site, "the model around the blocks"),),
            partial(
                drop_argument,
                Code.of(program.tree(shard.site.path)),
                shard.call,
                "reshard_after_forward",
                Safety.UNSAFE,
            ),
        )
