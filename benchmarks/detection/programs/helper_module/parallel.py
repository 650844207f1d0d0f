"""How the model is laid out over the ranks."""

import torch
import torch.nn as nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


def apply_fsdp(model: nn.Module, mesh: DeviceMesh, reduce_dtype: torch.dtype) -> None:
    """Shard every transformer block as a unit, then what is left with the root."""
    fsdp_kwargs = {
        "mesh": mesh,
        "mp_policy": MixedPrecisionPolicy(param_dtype=torch.float32, reduce_dtype=reduce_dtype),
    }
    for layer_id, layer in model.layers.items():
        # The last block is needed first in the backward pass.
        reshard = int(layer_id) < len(model.layers) - 1
        fully_shard(layer, reshard_after_forward=reshard, **fsdp_kwargs)
    fully_shard(model, **fsdp_kwargs)
