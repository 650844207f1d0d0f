"""What FSDP1 offers for its models, and what comes of it for one of FSDP2's.

Source: each was run on torch 2.13 on a model that `fully_shard` shards.
"""

from __future__ import annotations

from fsdplint.knowledge.names import FSDP1

SUMMON_FULL_PARAMS = f"{FSDP1}.summon_full_params"
# What the members of its enumerations start with.
SHARDING_STRATEGIES = "torch.distributed.fsdp.ShardingStrategy."
STATE_DICT_TYPES = "torch.distributed.fsdp.StateDictType."

# Static methods, with the position and keyword of the model and what they do to FSDP2's.
FSDP1_STATICS: dict[str, tuple[int, str, str]] = {
    f"{FSDP1}.state_dict_type": (0, "module", "gathers nothing and ends in a KeyError"),
    f"{FSDP1}.set_state_dict_type": (0, "module", "does nothing, so that its state stays sharded"),
    SUMMON_FULL_PARAMS: (
        0,
        "module",
        "does nothing, so that its parameters stay sharded",
    ),
    f"{FSDP1}.optim_state_dict": (0, "model", "raises an AttributeError"),
    f"{FSDP1}.optim_state_dict_to_load": (0, "model", "raises an AttributeError"),
    f"{FSDP1}.full_optim_state_dict": (0, "model", "raises an IndexError"),
    f"{FSDP1}.sharded_optim_state_dict": (0, "model", "raises an IndexError"),
    f"{FSDP1}.clip_grad_norm_": (0, "self", "raises an AttributeError"),
}

# Classes whose objects hold a model as their `module`.
WRAPPERS = frozenset({"torch.nn.parallel.DistributedDataParallel", "torch.nn.DataParallel"})
