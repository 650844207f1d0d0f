"""From one GPU to FSDP2 (`fully_shard`) on several."""

from __future__ import annotations

from fsdplint.migrate.ddp import ADAPTING, RULES, UNRELATED
from fsdplint.migrate.single.data import data
from fsdplint.migrate.single.devices import devices, numbered
from fsdplint.migrate.single.launch import launch
from fsdplint.migrate.single.leftovers import leftovers
from fsdplint.migrate.single.outputs import outputs
from fsdplint.migrate.single.parallel import data_parallel
from fsdplint.migrate.step import Migration

_RULES = RULES | {"same-data-on-every-rank"}

SINGLE = Migration(
    "single",
    (devices, data_parallel, launch, numbered, data, *ADAPTING, outputs),
    _RULES,
    leftovers,
    UNRELATED - _RULES,
)
