"""From DistributedDataParallel to FSDP2 (`fully_shard`)."""

from __future__ import annotations

from fsdplint.migrate.ddp.leftovers import leftovers
from fsdplint.migrate.ddp.wrappers import wrappers
from fsdplint.migrate.optimizers import early_optimizers
from fsdplint.migrate.rules import fixes_of
from fsdplint.migrate.saves import gathers
from fsdplint.migrate.step import Migration

# Rules whose fixes adapt the code around a model that is sharded now.
RULES = frozenset(
    {
        "only-root-sharded",
        "fsdp1-api-on-fsdp2-model",
        "no-sync-under-fsdp2",
        "optimizer-before-sharding",
        "sharded-state-saved",
        "save-without-gathered-state",
        "optimizer-state-saved-raw",
        "full-state-dict-into-sharded-model",
        "collective-under-rank-guard",
        "custom-method-bypasses-hooks",
        "direct-forward",
        "deepcopy-of-sharded-model",
        "device-not-set",
        "sharded-reduction-read-locally",
        "rank0-state-loaded-by-all",
        "rank0-state-saved-by-all",
        "state-of-inner-module-saved",
        "cast-after-sharding",
        "module-added-after-sharding",
        "kept-state-is-live",
    }
)

STEPS = (fixes_of("fsdp1-api-on-fsdp2-model"), early_optimizers, gathers)

DDP = Migration("ddp", (wrappers, *STEPS), RULES, leftovers)
