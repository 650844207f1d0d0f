"""Mutators: what puts each kind of mistake into a correct program, at many places."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

from benchmarks.detection.mutators import (
    authored,
    casts,
    class_checks,
    container,
    copied_model,
    custom_method,
    device_map,
    direct_forward,
    distributed_loads,
    eval_first,
    feeding,
    frozen,
    fsdp1_api,
    fsdp1_clip,
    fully_shard_arguments,
    import_paths,
    inference,
    inplace,
    launch,
    loaded_state,
    local_reads,
    materialized,
    meshes,
    mixed_lists,
    mixtures,
    module_added,
    no_sync,
    only_root,
    optimizer_order,
    optimizer_state,
    policies,
    precision,
    prepare_apart,
    pretrained_save,
    rank_guard,
    rank_init,
    reduce_dtype,
    reduced_loss,
    replaced_parameters,
    reshard_value,
    root_first,
    root_not_sharded,
    saved_state,
    scaler,
    sharded_twice,
    sync_left_off,
    ties,
    wrap_policies,
)
from benchmarks.detection.program import Mutant, Program

Mutator = Callable[[Program, Random], Iterator[Mutant]]
MUTATORS: tuple[Mutator, ...] = (
    device_map.mutate,
    only_root.mutate,
    root_not_sharded.mutate,
    module_added.mutate,
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
    casts.mutate,
    mixed_lists.mutate,
    fsdp1_api.mutate,
    fully_shard_arguments.mutate,
    import_paths.mutate,
    local_reads.mutate,
    optimizer_state.mutate,
    policies.mutate,
    precision.mutate,
    loaded_state.mutate,
    distributed_loads.mutate,
    replaced_parameters.mutate,
    reduced_loss.mutate,
    reduce_dtype.mutate,
    launch.mutate,
    authored.mutate,
)


def mutate(program: Program, seed: int) -> list[Mutant]:
    """Mutants of ``program``, the same for the same seed; no two have the same text."""
    mutants: dict[str, Mutant] = {}
    for mutator in MUTATORS:
        for made in mutator(program, Random(f"{seed} {program.name} {mutator.__module__}")):
            mutants.setdefault(repr(sorted(made.files.items())), made)
    return list(mutants.values())
