"""From `torch.save` and `torch.load` to `torch.distributed.checkpoint` (DCP)."""

from __future__ import annotations

from fsdplint.migrate.dcp.step import checkpoints, leftovers
from fsdplint.migrate.dcp.unused import unused
from fsdplint.migrate.step import Migration

DCP = Migration(
    "dcp",
    (checkpoints,),
    frozenset(),
    unused,
    leftovers,
    shards=False,
    whole_run=True,
)
