"""The errors of PyTorch that a broken contract shows itself by (texts of torch 2.6 to 2.15)."""

from __future__ import annotations

import re

MIXED = "got mixed torch.Tensor and DTensor"
"""DTensor's dispatcher, where a sharded parameter meets a plain tensor."""
SHARED_ACROSS_GROUPS = "is shared with a parameter already managed by another FSDP group"
"""FSDP2 at its first forward, from torch 2.12 on, for ties across units."""
MISSING = re.compile(r"'FSDP(?P<cls>\w+)' object has no attribute '(?P<name>\w+)'")
"""`nn.Module`'s, for a method that FSDP2 modules do not have."""
LOST = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "Connection was likely closed",
    "remote process exit",
)
"""Of gloo, sockets, torch's store and NCCL, for a rank that is gone."""
CLIPPING_OR_STEP = ("clip_grad", "_get_total_norm", "_multi_tensor", "_single_tensor", "_foreach")
"""Functions of torch that combine all parameters of a model, with what their names begin with."""
