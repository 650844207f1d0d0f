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

# What is the same under another name.
RENAMED: dict[str, str] = {
    "device_mesh": "mesh",
    "dp_mesh": "mesh",
    "mixed_precision": "mp_policy",
    "mixed_precision_policy": "mp_policy",
    "cpu_offload": "offload_policy",
    "cpu_offload_policy": "offload_policy",
}

# What tunes a mechanism that `fully_shard` does not have, or does by itself.
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

# What has to be done in another way, or what the default need not be.
REPLACED: dict[str, str] = {
    "auto_wrap_policy": "FSDP2 has no wrap policy: each block is sharded by a call of its own",
    "sharding_strategy": "`reshard_after_forward` and the mesh say what the strategy said, "
    "and this one cannot be read",
    "sync_module_states": "FSDP2 does not send rank 0's weights to the other ranks",
    "param_init_fn": "FSDP2 does not initialise modules on the meta device",
    "process_group": "FSDP2 takes a mesh in place of a process group",
    "ignored_modules": "FSDP2's `ignored_params` is a set of parameters",
    "ignored_states": "FSDP2's `ignored_params` is a set of parameters",
}

FOREIGN = frozenset({*RENAMED, *NEEDLESS, *REPLACED})


SUMMON_FULL_PARAMS = f"{FSDP1}.summon_full_params"
STATE_DICT_TYPE = f"{FSDP1}.state_dict_type"
# Gives rank 0 the state and the others an empty dict, unless told otherwise.
FULL_OPTIM_STATE_DICT = f"{FSDP1}.full_optim_state_dict"
OPTIM_STATE_DICT_TO_LOAD = f"{FSDP1}.optim_state_dict_to_load"
# The module and the name of an enumeration, and what the members of both enumerations start with.
SHARDING_STRATEGY = ("torch.distributed.fsdp", "ShardingStrategy")
SHARDING_STRATEGIES = "torch.distributed.fsdp.ShardingStrategy."
STATE_DICT_TYPES = "torch.distributed.fsdp.StateDictType."
# Strategies that shard over the second dimension of a mesh and replicate over the first. Source: a
# run on four ranks, torch 2.13.
HYBRID_STRATEGIES = frozenset({"HYBRID_SHARD", "_HYBRID_SHARD_ZERO2"})
# The one of them that reshards as a strategy for one dimension does.
HYBRID_OF = {"FULL_SHARD": "HYBRID_SHARD", "SHARD_GRAD_OP": "_HYBRID_SHARD_ZERO2"}

# Static methods, with the position and keyword of the model and what they do to FSDP2's.
FSDP1_STATICS: dict[str, tuple[int, str, str]] = {
    STATE_DICT_TYPE: (0, "module", "gathers nothing and ends in a KeyError"),
    f"{FSDP1}.set_state_dict_type": (0, "module", "does nothing, so that its state stays sharded"),
    SUMMON_FULL_PARAMS: (
        0,
        "module",
        "does nothing, so that its parameters stay sharded",
    ),
    f"{FSDP1}.optim_state_dict": (0, "model", "raises an AttributeError"),
    OPTIM_STATE_DICT_TO_LOAD: (0, "model", "raises an AttributeError"),
    FULL_OPTIM_STATE_DICT: (0, "model", "raises an IndexError"),
    f"{FSDP1}.sharded_optim_state_dict": (0, "model", "raises an IndexError"),
    f"{FSDP1}.clip_grad_norm_": (0, "self", "raises an AttributeError"),
}

# Classes whose objects hold a model as their `module`.
WRAPPERS = frozenset({"torch.nn.parallel.DistributedDataParallel", "torch.nn.DataParallel"})
