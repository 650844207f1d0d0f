"""From one GPU to FSDP2 (`fully_shard`) on several."""

from __future__ import annotations

from fsdplint.migrate.ddp import ADAPTING, UNRELATED
from fsdplint.migrate.single.data import data
from fsdplint.migrate.single.devices import devices, numbered
from fsdplint.migrate.single.launch import launch
from fsdplint.migrate.single.leftovers import leftovers
from fsdplint.migrate.single.outputs import outputs
from fsdplint.migrate.single.parallel import data_parallel
from fsdplint.migrate.step import Migration
from fsdplint.migrate.tidy import unused_imports

# A program on one GPU has none of these mistakes.
_OWN = frozenset({"device-not-set", "epoch-not-set", "same-data-on-every-rank"})

SINGLE = Migration(
    "single",
    (devices, data_parallel, launch, numbered, data, *ADAPTING, outputs),
    frozenset(),
    unused_imports,
    leftovers,
    UNRELATED - _OWN,
    ranks_before=1,
)
