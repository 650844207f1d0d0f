"""Mutators: what puts each kind of mistake into a correct program, at many places."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from random import Random

from benchmarks.detection.mutators import (
    assigned_data,
    async_backends,
    authored,
    casts,
    caught_errors,
    class_checks,
    cleared_gradients,
    container,
    copied_model,
    custom_method,
    device_map,
    direct_forward,
    distributed_loads,
    eval_first,
    feeding,
    finalization,
    flat_groups,
    frozen,
    fsdp1_api,
    fsdp1_clip,
    fully_shard_arguments,
    hooks,
    import_paths,
    inference,
    inplace,
    joins,
    kept_blocks,
    kept_states,
    launch,
    loaded_state,
    local_reads,
    lone_loads,
    lone_saves,
    materialized,
    meeting,
    meshes,
    mixed_lists,
    mixtures,
    module_added,
    moved_offload,
    no_sync,
    offload,
    only_root,
    optimizer_order,
    optimizer_state,
    options,
    policies,
    precision,
    prepare_apart,
    pretrained_save,
    rank_guard,
    rank_init,
    reduce_dtype,
    reduced_loss,
    reentrant,
    replaced_parameters,
    reshard_value,
    root_first,
    root_not_sharded,
    saved_state,
    scaler,
    scattered_saves,
    sharded_twice,
    skipped_steps,
    stray_parameters,
    sync_left_off,
    ties,
    unawaited_saves,
    uneven_meshes,
    unguarded_saves,
    wrap_policies,
)
from benchmarks.detection.program import Mutant, Program

Mutator = Callable[[Program, Random], Iterator[Mutant]]
MUTATORS: tuple[Mutator, ...] = (
    device_map.mutate,
    only_root.mutate,
    root_not_sharded.mutate,
    module_added.mutate,
    moved_offload.mutate,
    finalization.mutate,
    flat_groups.mutate,
    frozen.mutate,
    materialized.mutate,
    rank_init.mutate,
    root_first.mutate,
    container.mutate,
    sharded_twice.mutate,
    ties.mutate,
    wrap_policies.mutate,
    mixtures.mutate,
    reshard_value.mutate,
    copied_model.mutate,
    meshes.mutate,
    feeding.mutate,
    optimizer_order.mutate,
    direct_forward.mutate,
    eval_first.mutate,
    inference.mutate,
    inplace.mutate,
    joins.mutate,
    kept_blocks.mutate,
    kept_states.mutate,
    no_sync.mutate,
    custom_method.mutate,
    prepare_apart.mutate,
    saved_state.mutate,
    pretrained_save.mutate,
    sync_left_off.mutate,
    rank_guard.mutate,
    fsdp1_clip.mutate,
    scaler.mutate,
    class_checks.mutate,
    cleared_gradients.mutate,
    casts.mutate,
    caught_errors.mutate,
    reentrant.mutate,
    mixed_lists.mutate,
    fsdp1_api.mutate,
    fully_shard_arguments.mutate,
    hooks.mutate,
    import_paths.mutate,
    local_reads.mutate,
    optimizer_state.mutate,
    policies.mutate,
    precision.mutate,
    loaded_state.mutate,
    lone_loads.mutate,
    lone_saves.mutate,
    distributed_loads.mutate,
    scattered_saves.mutate,
    unawaited_saves.mutate,
    uneven_meshes.mutate,
    unguarded_saves.mutate,
    replaced_parameters.mutate,
    reduced_loss.mutate,
    skipped_steps.mutate,
    stray_parameters.mutate,
    reduce_dtype.mutate,
    launch.mutate,
    meeting.mutate,
    offload.mutate,
    assigned_data.mutate,
    async_backends.mutate,
    options.mutate,
    authored.mutate,
)


_DIMENSIONS = re.compile(r"\.(?:ndim\b|dim\(\))")
_FSDP1 = "FullyShardedDataParallel"


def _loses_groups(program: Program, made: Mutant) -> bool:
    """Whether a mutant has FSDP1 flatten parameters that the program groups by dimension.

    That is a mistake of its own, beside the one that the mutant is for.
    """
    before, after = ("".join(files.values()) for files in (program.files, made.files))
    return (
        made.rule != flat_groups.RULE
        and _FSDP1 in after
        and _FSDP1 not in before
        and bool(_DIMENSIONS.search(before))
    )


def mutate(program: Program, seed: int) -> list[Mutant]:
    """Mutants of ``program``, the same for the same seed; no two have the same text."""
    mutants: dict[str, Mutant] = {}
    for mutator in MUTATORS:
        for made in mutator(program, Random(f"{seed} {program.name} {mutator.__module__}")):
            if not _loses_groups(program, made):
                mutants.setdefault(repr(sorted(made.files.items())), made)
    return list(mutants.values())
