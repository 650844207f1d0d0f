"""The rules, one module each, in the order of their codes."""

from __future__ import annotations

from fsdplint.finding import Safety, Severity
from fsdplint.rule import Rule
from fsdplint.rules.all_reduced_loss_before_backward import all_reduced_loss_before_backward
from fsdplint.rules.blocks_kept_unsharded import blocks_kept_unsharded
from fsdplint.rules.cast_after_sharding import cast_after_sharding
from fsdplint.rules.checkpointing_matches_nothing import checkpointing_matches_nothing
from fsdplint.rules.clip_grad_util_on_fsdp1 import clip_grad_util_on_fsdp1
from fsdplint.rules.collective_under_rank_guard import collective_under_rank_guard
from fsdplint.rules.container_sharded import container_sharded
from fsdplint.rules.cpu_offload_without_cpu_backend import cpu_offload_without_cpu_backend
from fsdplint.rules.custom_method_bypasses_hooks import custom_method_bypasses_hooks
from fsdplint.rules.ddp_around_fsdp import ddp_around_fsdp
from fsdplint.rules.deepcopy_of_sharded_model import deepcopy_of_sharded_model
from fsdplint.rules.device_map_auto import device_map_auto
from fsdplint.rules.device_not_set import device_not_set
from fsdplint.rules.direct_forward import direct_forward
from fsdplint.rules.epoch_not_set import epoch_not_set
from fsdplint.rules.file_init_reused import file_init_reused
from fsdplint.rules.foreach_with_mixed_parameters import foreach_with_mixed_parameters
from fsdplint.rules.fresh_optimizer_in_dcp_load import fresh_optimizer_in_dcp_load
from fsdplint.rules.fsdp1_api_on_fsdp2_model import fsdp1_api_on_fsdp2_model
from fsdplint.rules.fsdp1_argument_to_fully_shard import fsdp1_argument_to_fully_shard
from fsdplint.rules.fsdp1_mixed_requires_grad import fsdp1_mixed_requires_grad
from fsdplint.rules.fsdp1_policy_object import fsdp1_policy_object
from fsdplint.rules.full_state_dict_into_sharded_model import full_state_dict_into_sharded_model
from fsdplint.rules.global_rank_as_device import global_rank_as_device
from fsdplint.rules.grad_scaler_on_fsdp1 import grad_scaler_on_fsdp1
from fsdplint.rules.gradient_sync_left_off import gradient_sync_left_off
from fsdplint.rules.inference_mode_forward import inference_mode_forward
from fsdplint.rules.inplace_on_sharded_output import inplace_on_sharded_output
from fsdplint.rules.join_with_fsdp import join_with_fsdp
from fsdplint.rules.local_rank_argument import local_rank_argument
from fsdplint.rules.low_precision_reduce import low_precision_reduce
from fsdplint.rules.materialized_without_init import materialized_without_init
from fsdplint.rules.mesh_arguments import mesh_arguments
from fsdplint.rules.mesh_dimension_roles import mesh_dimension_roles
from fsdplint.rules.module_added_after_sharding import module_added_after_sharding
from fsdplint.rules.no_sync_under_fsdp2 import no_sync_under_fsdp2
from fsdplint.rules.old_import_path import old_import_path
from fsdplint.rules.only_root_sharded import only_root_sharded
from fsdplint.rules.optimizer_before_sharding import optimizer_before_sharding
from fsdplint.rules.optimizer_state_saved_raw import optimizer_state_saved_raw
from fsdplint.rules.parameters_replaced_after_optimizer import parameters_replaced_after_optimizer
from fsdplint.rules.policy_missing_on_root import policy_missing_on_root
from fsdplint.rules.prepare_called_apart import prepare_called_apart
from fsdplint.rules.process_group_arguments import process_group_arguments
from fsdplint.rules.process_group_not_destroyed import process_group_not_destroyed
from fsdplint.rules.rank_dependent_init import rank_dependent_init
from fsdplint.rules.reentrant_checkpoint import reentrant_checkpoint
from fsdplint.rules.reshard_after_forward_value import reshard_after_forward_value
from fsdplint.rules.root_not_sharded import root_not_sharded
from fsdplint.rules.root_sharded_before_children import root_sharded_before_children
from fsdplint.rules.root_unsharded_after_eval import root_unsharded_after_eval
from fsdplint.rules.same_data_on_every_rank import same_data_on_every_rank
from fsdplint.rules.save_guarded_by_local_rank import save_guarded_by_local_rank
from fsdplint.rules.save_without_gathered_state import save_without_gathered_state
from fsdplint.rules.sharded_reduction_read_locally import sharded_reduction_read_locally
from fsdplint.rules.sharded_state_saved import sharded_state_saved
from fsdplint.rules.sharded_twice import sharded_twice
from fsdplint.rules.tied_weights_in_different_groups import tied_weights_in_different_groups
from fsdplint.rules.wrap_policy_called import wrap_policy_called

INVALID_SYNTAX = Rule(
    "invalid-syntax",
    "FSD001",
    "a file is not valid Python",
    Severity.ERROR,
    None,
    "0.1.0",
)
UNUSED_SUPPRESSION = Rule(
    "unused-suppression",
    "FSD002",
    "a comment silences a finding that is not there",
    Severity.WARNING,
    Safety.SAFE,
    "0.1.0",
)

RULES: tuple[Rule, ...] = (
    INVALID_SYNTAX,
    UNUSED_SUPPRESSION,
    device_not_set,
    global_rank_as_device,
    local_rank_argument,
    process_group_arguments,
    file_init_reused,
    cpu_offload_without_cpu_backend,
    process_group_not_destroyed,
    mesh_arguments,
    mesh_dimension_roles,
    device_map_auto,
    only_root_sharded,
    root_not_sharded,
    module_added_after_sharding,
    materialized_without_init,
    rank_dependent_init,
    root_sharded_before_children,
    container_sharded,
    sharded_twice,
    tied_weights_in_different_groups,
    wrap_policy_called,
    ddp_around_fsdp,
    reshard_after_forward_value,
    deepcopy_of_sharded_model,
    cast_after_sharding,
    fsdp1_mixed_requires_grad,
    optimizer_before_sharding,
    direct_forward,
    no_sync_under_fsdp2,
    clip_grad_util_on_fsdp1,
    sharded_reduction_read_locally,
    custom_method_bypasses_hooks,
    gradient_sync_left_off,
    root_unsharded_after_eval,
    all_reduced_loss_before_backward,
    parameters_replaced_after_optimizer,
    inplace_on_sharded_output,
    inference_mode_forward,
    grad_scaler_on_fsdp1,
    reentrant_checkpoint,
    foreach_with_mixed_parameters,
    checkpointing_matches_nothing,
    prepare_called_apart,
    fsdp1_policy_object,
    policy_missing_on_root,
    low_precision_reduce,
    blocks_kept_unsharded,
    sharded_state_saved,
    optimizer_state_saved_raw,
    full_state_dict_into_sharded_model,
    fresh_optimizer_in_dcp_load,
    save_guarded_by_local_rank,
    save_without_gathered_state,
    collective_under_rank_guard,
    join_with_fsdp,
    fsdp1_argument_to_fully_shard,
    fsdp1_api_on_fsdp2_model,
    old_import_path,
    same_data_on_every_rank,
    epoch_not_set,
)
