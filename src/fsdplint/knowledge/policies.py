"""The classes of mixed precision and offloading, of FSDP1 and of FSDP2.

Source: torch.distributed.fsdp.api and ._fully_shard._fsdp_api, torch 2.4 to 2.15.
"""

from __future__ import annotations

MIXED_PRECISION = "torch.distributed.fsdp.MixedPrecision"
MIXED_PRECISION_POLICY = "torch.distributed.fsdp.MixedPrecisionPolicy"
CPU_OFFLOAD = "torch.distributed.fsdp.CPUOffload"
CPU_OFFLOAD_POLICY = "torch.distributed.fsdp.CPUOffloadPolicy"
OFFLOAD_POLICY = "torch.distributed.fsdp.OffloadPolicy"

# In the order of the positional arguments.
MIXED_PRECISION_FIELDS = (
    "param_dtype",
    "reduce_dtype",
    "buffer_dtype",
    "keep_low_precision_grads",
    "cast_forward_inputs",
    "cast_root_forward_inputs",
    "_module_classes_to_ignore",
)
