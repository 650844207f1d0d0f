"""From FSDP1 (`FullyShardedDataParallel`) to FSDP2 (`fully_shard`)."""

from __future__ import annotations

from fsdplint.migrate.clipped_norms import clipped_norms
from fsdplint.migrate.fsdp2.accelerate import plugins, prepared_alone, prepared_apart
from fsdplint.migrate.fsdp2.aliases import aliases
from fsdplint.migrate.fsdp2.choices import choices
from fsdplint.migrate.fsdp2.class_names import class_names
from fsdplint.migrate.fsdp2.classes import attributes, scalers, shared_names, tests
from fsdplint.migrate.fsdp2.contexts import contexts
from fsdplint.migrate.fsdp2.corrected import corrected
from fsdplint.migrate.fsdp2.environment import environment
from fsdplint.migrate.fsdp2.full_params import full_params
from fsdplint.migrate.fsdp2.gathers import mistakes
from fsdplint.migrate.fsdp2.launch_lines import launch_lines
from fsdplint.migrate.fsdp2.launches import launches
from fsdplint.migrate.fsdp2.leftovers import leftovers
from fsdplint.migrate.fsdp2.lightning.fabric import early_optimizers
from fsdplint.migrate.fsdp2.lightning.files import config_files
from fsdplint.migrate.fsdp2.lightning.strategies import strategies
from fsdplint.migrate.fsdp2.meshes import meshes
from fsdplint.migrate.fsdp2.methods import methods
from fsdplint.migrate.fsdp2.norms import counts, norms, optimizer_norms
from fsdplint.migrate.fsdp2.others import libraries
from fsdplint.migrate.fsdp2.policies import policies
from fsdplint.migrate.fsdp2.reductions import reductions
from fsdplint.migrate.fsdp2.states import states
from fsdplint.migrate.fsdp2.trainer import trainers
from fsdplint.migrate.fsdp2.trainer_lines import trainer_lines
from fsdplint.migrate.fsdp2.unit_names import unit_names
from fsdplint.migrate.fsdp2.unused import unused
from fsdplint.migrate.fsdp2.variables import launch_variables
from fsdplint.migrate.fsdp2.wrappers import wrappers
from fsdplint.migrate.gradients import cleared
from fsdplint.migrate.modes import unwraps
from fsdplint.migrate.no_syncs import no_syncs
from fsdplint.migrate.reshards import reshards
from fsdplint.migrate.rules import within
from fsdplint.migrate.step import Migration
from fsdplint.migrate.unknown_code import unknown_code
from fsdplint.migrate.unknown_optimizers import unknown_optimizers

FSDP2 = Migration(
    "fsdp2",
    steps=(
        *(shared_names, aliases, choices, meshes, norms, optimizer_norms, counts, corrected),
        *(states, full_params, wrappers, contexts, policies),
        *(tests, scalers, attributes, methods, no_syncs, unwraps, unit_names, class_names),
        *map(
            within, (cleared, clipped_norms, unknown_code, unknown_optimizers, reductions, reshards)
        ),
        *(plugins, prepared_alone, prepared_apart, launches, launch_lines),
        *(launch_variables, environment, trainers, trainer_lines),
        *(strategies, early_optimizers, config_files, libraries),
    ),
    rules=frozenset(),
    cleanup=unused,
    first=within(mistakes),
    leftovers=leftovers,
)
