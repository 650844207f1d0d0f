"""Note over how many targets each mean of a loss goes."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from fsdplint.verify.events import LossMean
from fsdplint.verify.rank import access
from fsdplint.verify.rank.patch import wrap
from fsdplint.verify.rank.registry import Seen

_MOST = 50
"""Calls to record: each one synchronizes with the device."""


def install(seen: Seen) -> None:
    """Wrap ``cross_entropy``, which `CrossEntropyLoss` calls too."""
    signature = inspect.signature(torch.nn.functional.cross_entropy)
    noted: list[int] = []

    def note(args: Any, kwargs: Any, result: Tensor) -> None:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given, target = bound.arguments, bound.arguments["target"]
        plain = isinstance(target, Tensor) and not isinstance(target, DTensor)
        if not plain or target.is_floating_point() or given["reduction"] != "mean":
            return
        noted.append(int((target != given["ignore_index"]).sum()))
        seen.write(LossMean(noted[-1], float(access.local(result)), seen.place()))

    look = seen.recorder.probe("means")(note)

    def cross_entropy(original: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return result
        if len(noted) < _MOST and not torch.cuda.is_current_stream_capturing():
            look(args, kwargs, result)
        return result

    wrap(torch.nn.functional, "cross_entropy", cross_entropy)
