"""What DistributedDataParallel takes and has that FSDP2 does not, as data.

Source: signature of torch 2.13, and runs of both on two ranks (gloo): losses and parameters are
equal bit by bit after steps of AdamW and SGD, also with accumulated gradients.
"""

from __future__ import annotations

from fsdplint.knowledge.collectives import DDP

(CLASS,) = DDP
# The wrapper of one process with several GPUs.
DATA_PARALLEL = "torch.nn.DataParallel"
# The same for one forward, as a function, and what copies a module to several GPUs for it.
DATA_PARALLEL_FORWARD = "torch.nn.parallel.data_parallel"
REPLICATE = "torch.nn.parallel.replicate"

# Its parameters after the module, in the order of the positional ones.
ARGUMENTS = (
    "device_ids",
    "output_device",
    "dim",
    "broadcast_buffers",
    "init_sync",
    "process_group",
    "bucket_cap_mb",
    "find_unused_parameters",
    "check_reduction",
    "gradient_as_bucket_view",
    "static_graph",
)

# Arguments for mechanisms that FSDP2 does not have or need.
NEEDLESS = frozenset(
    {
        *("device_ids", "output_device", "dim", "bucket_cap_mb", "bucket_cap_mb_list"),
        *("check_reduction", "gradient_as_bucket_view", "static_graph", "batched_grad_copy"),
        *("broadcast_buffers", "init_sync", "find_unused_parameters", "forward_sync_buffers"),
    }
)
# Why an argument cannot be dropped unless it is None or False.
REFUSED: dict[str, str] = {
    "process_group": "FSDP2 takes a mesh instead of a process group; shard over a mesh of these "
    "ranks by hand",
    "device_mesh": "its mesh may have other dimensions; pass `mesh=` to `fully_shard` by hand",
    "mixed_precision": "FSDP2 takes a `MixedPrecisionPolicy`, on each block and on the root; pass "
    "one by hand",
}

# Sets whether the next backward reduces gradients.
SYNC_ATTRIBUTE = "require_backward_grad_sync"
# Only promises something to DDP.
PROMISE = "_set_static_graph"
# Gathers the state of a `ZeroRedundancyOptimizer` on one rank, before that saves it.
CONSOLIDATES = "consolidate_state_dict"
# Methods with no counterpart in FSDP2.
METHODS: dict[str, str] = {
    "register_comm_hook": "FSDP2 has no such communication hook; remove it, or write one with "
    "`set_custom_reduce_scatter` by hand",
    "join": "FSDP2 cannot train on batches that only some ranks have; give every rank the same "
    "number by hand",
}
COMM_HOOKS = "torch.distributed.algorithms.ddp_comm_hooks"
ZERO = (
    "torch.distributed.optim.ZeroRedundancyOptimizer",
    "torch.distributed.optim.zero_redundancy_optimizer.ZeroRedundancyOptimizer",
)
