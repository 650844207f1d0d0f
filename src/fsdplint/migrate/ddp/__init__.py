"""From DistributedDataParallel to FSDP2 (`fully_shard`)."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.migrate.attached import attached
from fsdplint.migrate.clipped_norms import clipped_norms
from fsdplint.migrate.copies import copies
from fsdplint.migrate.ddp.decisions import decisions
from fsdplint.migrate.ddp.evaluations import evaluations
from fsdplint.migrate.ddp.leftovers import leftovers
from fsdplint.migrate.ddp.prefixes import prefixes
from fsdplint.migrate.ddp.unwraps import unwraps
from fsdplint.migrate.ddp.uses import uses
from fsdplint.migrate.ddp.wrappers import wrappers
from fsdplint.migrate.double_backward import double_backward
from fsdplint.migrate.errors import states_after_errors
from fsdplint.migrate.factories import factories
from fsdplint.migrate.formats import memory_formats
from fsdplint.migrate.forward_methods import forward_methods
from fsdplint.migrate.gradients import cleared
from fsdplint.migrate.modes import wraps_by_ddp
from fsdplint.migrate.no_syncs import no_syncs
from fsdplint.migrate.optimizers import early_optimizers
from fsdplint.migrate.parameter_uses import gathered_reads
from fsdplint.migrate.pickled import pickled
from fsdplint.migrate.reshards import reshards
from fsdplint.migrate.rules import fixes_of, within
from fsdplint.migrate.states import gathers, loads, unseen
from fsdplint.migrate.step import Context, Found, Migration
from fsdplint.migrate.tidy import FULL, tidied
from fsdplint.migrate.unknown_code import unknown_code
from fsdplint.migrate.unknown_optimizers import unknown_optimizers
from fsdplint.migrate.unshardable import unshardable


def _no_syncs(context: Context) -> Iterator[Found]:
    """Yield what becomes of each `no_sync`, once the models are known by the calls that shard."""
    yield from () if wraps_by_ddp(context) else no_syncs(context)


# Steps on programs whose model is sharded by now.
ADAPTING = (
    fixes_of("fsdp1-api-on-fsdp2-model"),
    factories,
    *map(
        within,
        (early_optimizers, _no_syncs, memory_formats, cleared, copies, pickled, double_backward),
    ),
    *map(within, (forward_methods, attached, gathers, loads, reshards, unseen, clipped_norms)),
    *map(within, (unknown_code, unknown_optimizers, unshardable, gathered_reads)),
    within(states_after_errors),
)

# Rules on mistakes that a program has before as well; they hold up no migration.
UNRELATED = frozenset(
    {
        "all-reduced-loss-before-backward",
        "checkpoint-path-differs-by-rank",
        "device-not-set",
        "epoch-not-set",
        "error-caught-on-one-rank",
        "file-init-reused",
        "local-rank-argument",
        "local-rank-as-rank",
        "more-processes-than-devices",
        "process-group-arguments",
        "process-group-not-destroyed",
        "python-without-launcher",
        "same-data-on-every-rank",
        "sampler-seed-differs-by-rank",
        "save-guarded-by-local-rank",
        "split-differs-by-rank",
        "step-skipped-on-one-rank",
    }
)

TOLERATED = frozenset({"only-root-sharded"})

DDP = Migration(
    "ddp",
    (
        wrappers,
        prefixes,
        uses,
        within(unwraps),
        *ADAPTING,
        within(evaluations),
        within(decisions),
    ),
    frozenset(),
    tidied(*FULL),
    leftovers,
    UNRELATED,
    TOLERATED,
    chooses_units=True,
)
