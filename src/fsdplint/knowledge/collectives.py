"""Calls that all ranks make together, and what else keeps their copies of a parameter equal."""

from __future__ import annotations

from dataclasses import dataclass

from fsdplint.knowledge.checkpoints import (
    CHECKPOINT,
    GET_MODEL_STATE,
    GET_OPTIMIZER_STATE,
    GET_STATE,
    SET_MODEL_STATE,
    SET_OPTIMIZER_STATE,
    SET_STATE,
)
from fsdplint.knowledge.fsdp import SUMMON_FULL_PARAMS
from fsdplint.knowledge.launch import NEW_GROUP
from fsdplint.knowledge.names import DISTRIBUTED, FSDP1, KEYWORD_ONLY


@dataclass(frozen=True, slots=True)
class Group:
    """Where a call takes its process group; without one it is for all ranks."""

    position: int = KEYWORD_ONLY
    keyword: str = "group"


# The `_single` ones are torch 2.13's and 2.14's names for the `_tensor` ones.
_C10D = {
    "barrier": Group(0),
    "monitored_barrier": Group(0),
    "all_reduce": Group(2),
    "all_reduce_coalesced": Group(2),
    "broadcast": Group(2),
    "all_gather": Group(2),
    "all_gather_coalesced": Group(2),
    "all_gather_into_tensor": Group(2),
    "all_gather_single": Group(2),
    "all_gather_object": Group(2),
    "all_to_all": Group(2),
    "all_to_all_single": Group(4),
    "broadcast_object_list": Group(2),
    "gather": Group(3),
    "gather_into_tensor": Group(3),
    "gather_single": Group(3),
    "gather_object": Group(3),
    "reduce": Group(3),
    "reduce_scatter": Group(3),
    "reduce_scatter_single": Group(3),
    "reduce_scatter_tensor": Group(3),
    "scatter": Group(3),
    "scatter_object_list": Group(3),
}
_CHECKPOINT = {
    "save": Group(keyword="process_group"),
    "async_save": Group(keyword="process_group"),
    "load": Group(keyword="process_group"),
    "save_state_dict": Group(2, "process_group"),
    "load_state_dict": Group(2, "process_group"),
}
# Those after which their first argument is the same on all ranks that take part.
MAKES_EQUAL = frozenset(
    f"{DISTRIBUTED}.{name}"
    for name in (
        "all_gather",
        "all_gather_into_tensor",
        "all_gather_object",
        "all_gather_single",
        "all_reduce",
        "broadcast",
        "broadcast_object_list",
    )
)
# Keywords of sharding calls that choose the ranks that take part.
GROUP_KEYWORDS = frozenset({"device_mesh", "mesh", "process_group"})
BARRIER = "torch.distributed.barrier"
ALL_REDUCE = "torch.distributed.all_reduce"
C10D_CALLS = frozenset(f"{DISTRIBUTED}.{name}" for name in _C10D)
# Of all ranks, whatever is sharded: members or not, every rank has to help to make a group.
WORLD_CALLS: dict[str, Group] = {
    **{f"{DISTRIBUTED}.{name}": group for name, group in _C10D.items()},
    NEW_GROUP: Group(),
    "torch.distributed.new_subgroups": Group(),
    "torch.distributed.new_subgroups_by_enumeration": Group(),
    **{f"{CHECKPOINT}.{name}": group for name, group in _CHECKPOINT.items()},
}
# Keywords with which such a call is this rank's own affair, if they are not False.
ALONE_KEYWORDS = frozenset({"no_dist", "use_local_synchronization"})

# For these, FSDP1's model always, FSDP2's only with one of these options.
STATE_CALLS = frozenset(
    {
        GET_MODEL_STATE,
        GET_OPTIMIZER_STATE,
        GET_STATE,
        SET_MODEL_STATE,
        SET_OPTIMIZER_STATE,
        SET_STATE,
    }
)
WHOLE_STATE_OPTIONS = frozenset({"full_state_dict", "broadcast_from_rank0"})

# Static methods of FSDP1, with the position of the model; without effect on an FSDP2 model.
FSDP1_CALLS: dict[str, int] = {
    SUMMON_FULL_PARAMS: 0,
    f"{FSDP1}.optim_state_dict": 0,
    f"{FSDP1}.full_optim_state_dict": 0,
    f"{FSDP1}.sharded_optim_state_dict": 0,
    f"{FSDP1}.scatter_full_optim_state_dict": 1,
}
# What an FSDP1 model's own methods do; FSDP2's `state_dict` and `load_state_dict` are local.
FSDP1_METHODS = frozenset({"state_dict", "clip_grad_norm_"})
# A choice of state that takes FSDP1's `state_dict` no collective.
FSDP1_STATE_TYPES = frozenset({f"{FSDP1}.state_dict_type", f"{FSDP1}.set_state_dict_type"})

NN_UTILS = "torch.nn.utils"
CLIP_GRAD_NORM = f"{NN_UTILS}.clip_grad_norm_"
GET_TOTAL_NORM = f"{NN_UTILS}.get_total_norm"
# The second is deprecated.
CLIPPING = (CLIP_GRAD_NORM, f"{NN_UTILS}.clip_grad_norm")
# Of parameters that are DTensors, the sum over all ranks.
NORM_CALLS = frozenset({CLIP_GRAD_NORM, GET_TOTAL_NORM})
# Methods of a sharded tensor, and of a module that is a unit.
TENSOR_METHODS = frozenset({"full_tensor", "redistribute"})
UNIT_METHODS = frozenset({"unshard"})

# Methods of accelerate's Accelerator.
ACCELERATOR_METHODS = frozenset(
    {
        "wait_for_everyone",
        "get_state_dict",
        "save_state",
        "load_state",
        "save_model",
        "gather",
        "gather_for_metrics",
        "reduce",
        "pad_across_processes",
        "clip_grad_norm_",
    }
)

CALLS = frozenset({*WORLD_CALLS, *STATE_CALLS, *FSDP1_CALLS, *FSDP1_STATE_TYPES, *NORM_CALLS})
METHODS = frozenset({*TENSOR_METHODS, *UNIT_METHODS, *ACCELERATOR_METHODS, *FSDP1_METHODS})


PARALLELIZE_MODULE = "torch.distributed.tensor.parallel.parallelize_module"
# Calls on a model, or on a part of one, that reduce its gradients or divide its parameters.
KEEPS_REPLICAS_EQUAL: tuple[str, ...] = (
    "torch.nn.parallel.DistributedDataParallel",
    "torch.distributed._composable.replicate",
    "torch.distributed._composable.replicate.replicate",
    "torch.distributed._composable.replicate_with_fsdp.replicate",
    "torch.distributed.tensor.distribute_module",
    PARALLELIZE_MODULE,
)

# Of these, the ones that take a whole module, each its gradients by itself.
DDP: tuple[str, ...] = ("torch.nn.parallel.DistributedDataParallel",)
REPLICATE: tuple[str, ...] = (
    "torch.distributed._composable.replicate",
    "torch.distributed._composable.replicate.replicate",
)

# Hooks of a parameter, in which its gradient may be reduced.
AFTER_ACCUMULATION = "register_post_accumulate_grad_hook"
GRADIENT_HOOKS: tuple[str, ...] = ("register_hook", AFTER_ACCUMULATION)

# Collectives that reduce gradients where they are called on them.
TENSOR_COLLECTIVES: tuple[str, ...] = (
    ALL_REDUCE,
    "torch.distributed.all_reduce_coalesced",
    "torch.distributed.broadcast",
    "torch.distributed.reduce",
    "torch.distributed.nn.functional.all_reduce",
    "torch.distributed._functional_collectives.all_reduce",
)

# Modules whose functions communicate, or do if parameters or gradients are DTensors.
MAY_NEED_ALL_RANKS = (f"{DISTRIBUTED}.", "torch.nn.utils.")
