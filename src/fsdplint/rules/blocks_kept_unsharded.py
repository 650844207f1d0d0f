from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint import fixes
from fsdplint.engine.facts.resharding import kept_blocks
from fsdplint.engine.program import Program
from fsdplint.finding import Safety
from fsdplint.rule import Report


def blocks_kept_unsharded(program: Program) -> Iterator[Report]:
    for shard, root in kept_blocks(program):
        yield Report(
            program.span(shard.site),
            "`reshard_after_forward=False` on every block keeps the whole model's parameters on "
            "each rank from the forward to the backward",
            "stays gathered",
            (program.evidence(root.site, "the model around the blocks"),),
            partial(
                fixes.argument.drop_argument,
                fixes.code.Code.of(program.tree(shard.site.path)),
                shard.call,
                "reshard_after_forward",
                Safety.UNSAFE,
            ),
        )
