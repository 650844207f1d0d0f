"""From one GPU to FSDP2 (`fully_shard`) on several."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.migrate.ddp import ADAPTING, TOLERATED, UNRELATED
from fsdplint.migrate.ddp.prefixes import prefixes
from fsdplint.migrate.rules import within
from fsdplint.migrate.single.averages import averages
from fsdplint.migrate.single.data import data
from fsdplint.migrate.single.decisions import decisions
from fsdplint.migrate.single.devices import devices, numbered
from fsdplint.migrate.single.downloads import downloads
from fsdplint.migrate.single.files import files
from fsdplint.migrate.single.folders import folders
from fsdplint.migrate.single.launch import launch
from fsdplint.migrate.single.leftovers import leftovers
from fsdplint.migrate.single.outputs import outputs
from fsdplint.migrate.single.own_forwards import own_forwards
from fsdplint.migrate.single.parallel import data_parallel
from fsdplint.migrate.single.random_states import random_states
from fsdplint.migrate.single.terminal import terminal
from fsdplint.migrate.single.writes import waits, writes
from fsdplint.migrate.step import Change, Context, Found, Migration
from fsdplint.migrate.tidy import FULL, tidied


def _start(context: Context) -> Iterator[Found]:
    """Yield what becomes of the program's one GPU, and once that is done, the start of ranks."""
    found = [
        *devices(context),
        *prefixes(context, drops_data_parallel=True),
        *data_parallel(context),
    ]
    changes = any(isinstance(each, Change) for each in found)
    yield from found if changes else [*found, *launch(context)]


# A program on one GPU has none of these mistakes.
_OWN = frozenset(
    {"device-not-set", "epoch-not-set", "same-data-on-every-rank", "step-skipped-on-one-rank"}
)

SINGLE = Migration(
    "single",
    (
        _start,
        within(numbered),
        random_states,
        within(data),
        folders,
        downloads,
        terminal,
        own_forwards,
        *ADAPTING,
        writes,
        waits,
        files,
        outputs,
        decisions,
        averages,
    ),
    frozenset(),
    tidied(*FULL, "DistributedSampler("),
    leftovers,
    UNRELATED - _OWN,
    TOLERATED,
    ranks_before=1,
    of_script=True,
    chooses_units=True,
)
