"""Gradient scalers that check only this rank's gradients, and the names of their arguments.

Source: signatures of torch 2.6, 2.13 and 2.15.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

GRAD_SCALER = "torch.amp.GradScaler"
SHARDED_SCALER = "torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler"
_OPTIONS = ("init_scale", "growth_factor", "backoff_factor", "growth_interval", "enabled")
# Scalers that share nothing between ranks, with their parameters in order. The sharded one has the
# same names in another order, and a device first.
SCALERS: dict[str, tuple[str, ...]] = {
    "torch.cuda.amp.GradScaler": _OPTIONS,
    "torch.cuda.amp.grad_scaler.GradScaler": _OPTIONS,
    GRAD_SCALER: ("device", *_OPTIONS),
    "torch.amp.grad_scaler.GradScaler": ("device", *_OPTIONS),
    "torch.GradScaler": ("device", *_OPTIONS),
}
# Attributes that hold the overflows that a scaler has found (torch 2.13). Code may reduce them.
RECORDS = ("_found_inf_per_device", "_per_optimizer_states", "found_inf_per_device")
AUTOCASTS = ("torch.autocast", "torch.amp.autocast", "torch.cuda.amp.autocast")

_INSIDE = re.compile(r"found_inf|_per_optimizer|_growth_tracker|scaler\w*\._[a-z]", re.IGNORECASE)
_IMPORTS = re.compile(r"^[ \t]*(?:from|import)\b[^\r\n(]*(?:\([^)]*\))?", re.MULTILINE)
_CLASS = re.compile(r"\bGradScaler\b(?!\s*\()")


def asks_for_class(texts: Iterable[str]) -> bool:
    """True if code reads a scaler's private state, tests its class, subclasses or annotates it.

    The sharded scaler is not a `torch.cuda.amp.GradScaler`, and has other private state.
    """
    return any(_INSIDE.search(text) or _CLASS.search(_IMPORTS.sub("", text)) for text in texts)
