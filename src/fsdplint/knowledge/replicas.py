"""What else than FSDP2 may keep the ranks' copies of a parameter equal."""

from __future__ import annotations

from fsdplint.knowledge.collectives import ALL_REDUCE

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
GRADIENT_HOOKS: tuple[str, ...] = ("register_hook", "register_post_accumulate_grad_hook")

# Collectives that reduce gradients where they are called on them.
TENSOR_COLLECTIVES: tuple[str, ...] = (
    ALL_REDUCE,
    "torch.distributed.all_reduce_coalesced",
    "torch.distributed.broadcast",
    "torch.distributed.reduce",
    "torch.distributed.nn.functional.all_reduce",
    "torch.distributed._functional_collectives.all_reduce",
)
