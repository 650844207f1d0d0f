"""What the sharding calls of both FSDPs take, and what only one of them has."""

from __future__ import annotations

from fsdplint.knowledge.names import FSDP1
from fsdplint.knowledge.torch_range import EARLIEST, Release

# The keywords of torch 2.15 with the first release of each; all are keyword-only.
SINCE: dict[str, Release] = {
    "module": EARLIEST,
    "mesh": EARLIEST,
    "reshard_after_forward": EARLIEST,
    "mp_policy": EARLIEST,
    "offload_policy": EARLIEST,
    "shard_placement_fn": (2, 6, 0),
    "ignored_params": (2, 7, 0),
    "dp_mesh_dims": (2, 12, 0),
}

# Arguments that FSDP2 has under another name.
RENAMED: dict[str, str] = {
    "device_mesh": "mesh",
    "dp_mesh": "mesh",
    "mixed_precision": "mp_policy",
    "mixed_precision_policy": "mp_policy",
    "cpu_offload": "offload_policy",
    "cpu_offload_policy": "offload_policy",
}

# Arguments for mechanisms that `fully_shard` does not have, or that it handles itself.
NEEDLESS = frozenset(
    {
        "backward_prefetch",
        "device_id",
        "device_ids",
        "find_unused_parameters",
        "forward_prefetch",
        "gradient_as_bucket_view",
        "limit_all_gathers",
        "static_graph",
        "use_orig_params",
    }
)

# Why an argument has no direct replacement, and what to do by hand; defaults can be dropped.
REPLACED: dict[str, str] = {
    "auto_wrap_policy": "FSDP2 has no wrap policy; call `fully_shard` on each block by hand",
    "sharding_strategy": "this strategy has no direct replacement; set `reshard_after_forward` and "
    "`mesh` by hand",
    "sync_module_states": "FSDP2 does not broadcast rank 0's weights; broadcast or load them by "
    "hand",
    "param_init_fn": "FSDP2 does not initialize modules on the meta device; call `to_empty` and "
    "initialize them by hand",
    "process_group": "FSDP2 takes a mesh instead of a process group; build and pass one by hand",
    "ignored_modules": "`ignored_params` takes a set of parameters; pass those of the modules by "
    "hand",
    "ignored_states": "`ignored_params` takes a set of parameters; pass them by hand",
}

# What `torch.distributed.fsdp` offers for FSDP1 alone. Source: torch 2.13.
FSDP1_NAMES = frozenset(
    f"torch.distributed.fsdp.{name}"
    for name in (
        "BackwardPrefetch",
        "CPUOffload",
        "FlatParameter",
        "FullOptimStateDictConfig",
        "FullStateDictConfig",
        "FullyShardedDataParallel",
        "LocalOptimStateDictConfig",
        "LocalStateDictConfig",
        "MixedPrecision",
        "OptimStateKeyType",
        "ShardedOptimStateDictConfig",
        "ShardedStateDictConfig",
        "ShardingStrategy",
        "StateDictConfig",
        "StateDictSettings",
        "StateDictType",
    )
)

# The parameter of an FSDP1 unit, and its name in a LOCAL_STATE_DICT.
FLAT_PARAMETER = "_flat_param"
# Attributes of FSDP1's wrapper and of its handle that nothing else has. Source: torch 2.13.
ONLY_OF_FSDP1 = frozenset({FLAT_PARAMETER, "_all_handles", "flat_param"})
# Methods of FSDP1's wrapper that have no counterpart for a model of FSDP2. Source: torch 2.13.
METHODS_OF_FSDP1 = frozenset(
    {
        "check_is_root",
        "fsdp_modules",
        "get_state_dict_type",
        "register_comm_hook",
        "rekey_optim_state_dict",
        "scatter_full_optim_state_dict",
    }
)
# The module that the wrapper holds, by a name that nothing else has.
WRAPPED_MODULE = "_fsdp_wrapped_module"
# Attributes that FSDP1's wrapper has beside those of the module that it wraps. Source: torch 2.13.
WRAPPER_ATTRIBUTES = frozenset(
    {
        FLAT_PARAMETER,
        WRAPPED_MODULE,
        "_handle",
        "backward_prefetch",
        "check_is_root",
        "compute_device",
        "cpu_offload",
        "forward_prefetch",
        "limit_all_gathers",
        "mixed_precision",
        "module",
        "params",
        "process_group",
        "rank",
        "sharding_strategy",
        "training_state",
        "world_size",
    }
)

# The arguments of FSDP1's class after the module, in the order of the positional ones.
FSDP1_ARGUMENTS = (
    "process_group",
    "sharding_strategy",
    "cpu_offload",
    "auto_wrap_policy",
    "backward_prefetch",
    "mixed_precision",
    "ignored_modules",
    "param_init_fn",
    "device_id",
    "sync_module_states",
    "forward_prefetch",
    "limit_all_gathers",
    "use_orig_params",
    "ignored_states",
    "device_mesh",
)

FOREIGN = frozenset({*RENAMED, *NEEDLESS, *REPLACED})


SUMMON_FULL_PARAMS = f"{FSDP1}.summon_full_params"
STATE_DICT_TYPE = f"{FSDP1}.state_dict_type"
# By default, returns the state on rank 0 and an empty dict on the others.
FULL_OPTIM_STATE_DICT = f"{FSDP1}.full_optim_state_dict"
OPTIM_STATE_DICT = f"{FSDP1}.optim_state_dict"
SHARDED_OPTIM_STATE_DICT = f"{FSDP1}.sharded_optim_state_dict"
OPTIM_STATE_DICT_TO_LOAD = f"{FSDP1}.optim_state_dict_to_load"
SET_STATE_DICT_TYPE = f"{FSDP1}.set_state_dict_type"
# Rank 0's state goes to the other ranks, or every rank has the whole state itself.
SCATTER_FULL_OPTIM_STATE_DICT = f"{FSDP1}.scatter_full_optim_state_dict"
SHARD_FULL_OPTIM_STATE_DICT = f"{FSDP1}.shard_full_optim_state_dict"
REKEY_OPTIM_STATE_DICT = f"{FSDP1}.rekey_optim_state_dict"
# The module and the name of an enumeration, and what the members of both enumerations start with.
SHARDING_STRATEGY = ("torch.distributed.fsdp", "ShardingStrategy")
SHARDING_STRATEGIES = "torch.distributed.fsdp.ShardingStrategy."
STATE_DICT_TYPES = "torch.distributed.fsdp.StateDictType."
# The classes of its configs. With `offload_to_cpu=True`, the default for optimizers, tensors go to
# the CPU; with `rank0_only=True`, the other ranks get an empty dict. Run on torch 2.13.
FULL_CONFIGS = frozenset(
    f"torch.distributed.fsdp.{name}" for name in ("FullStateDictConfig", "FullOptimStateDictConfig")
)
SHARDED_CONFIGS = frozenset(
    f"torch.distributed.fsdp.{name}"
    for name in ("ShardedStateDictConfig", "ShardedOptimStateDictConfig")
)
# Configs of local states, which hold FSDP1's flat parameters.
LOCAL_CONFIGS = frozenset(
    f"torch.distributed.fsdp.{name}"
    for name in ("LocalStateDictConfig", "LocalOptimStateDictConfig")
)
# Strategies that shard over the second dimension of a mesh and replicate over the first. Source: a
# run on four ranks, torch 2.13.
HYBRID_STRATEGIES = frozenset({"HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"})
# The one of them that reshards as a strategy for one dimension does.
HYBRID_OF = {"FULL_SHARD": "HYBRID_SHARD", "SHARD_GRAD_OP": "_HYBRID_SHARD_ZERO2"}
# Strategies that free the gathered parameters after the forward. Source: all-gathers counted in a
# run on two ranks, torch 2.13 (the page of reentrant-checkpoint).
RESHARDING_STRATEGIES = frozenset({"FULL_SHARD", "HYBRID_SHARD"})

# Static methods, with the position and keyword of the model and their effect on an FSDP2 model.
FSDP1_STATICS: dict[str, tuple[int, str, str]] = {
    STATE_DICT_TYPE: (0, "module", "gathers nothing and raises a KeyError"),
    SET_STATE_DICT_TYPE: (0, "module", "does nothing, and the state stays sharded"),
    SUMMON_FULL_PARAMS: (
        0,
        "module",
        "does nothing, and the parameters stay sharded",
    ),
    OPTIM_STATE_DICT: (0, "model", "raises an AttributeError"),
    OPTIM_STATE_DICT_TO_LOAD: (0, "model", "raises an AttributeError"),
    FULL_OPTIM_STATE_DICT: (0, "model", "raises an IndexError"),
    SHARDED_OPTIM_STATE_DICT: (0, "model", "raises an IndexError"),
    f"{FSDP1}.clip_grad_norm_": (0, "self", "raises an AttributeError"),
}

# Classes whose objects hold a model as their `module`.
WRAPPERS = frozenset({"torch.nn.parallel.DistributedDataParallel", "torch.nn.DataParallel"})
