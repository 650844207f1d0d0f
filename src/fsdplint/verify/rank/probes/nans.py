"""Find the first module whose output has a NaN."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.modules.module import register_module_forward_hook

from fsdplint.verify.events import FirstNan
from fsdplint.verify.rank import access
from fsdplint.verify.rank.registry import Seen

_DEPTH = 3


def install(seen: Seen) -> None:
    """Look at what each module returns, until one has a NaN."""
    found: list[bool] = []

    def look(module: nn.Module, given: Any, output: Any) -> None:
        # A graph that is captured cannot wait for a value.
        if not torch.cuda.is_current_stream_capturing() and _has_nan(output):
            found.append(True)
            path = seen.path(module)
            name = access.clean(path[1]) if path else ""
            cls = access.class_name(module)
            weights = _has_nan(list(module._parameters.values()))
            seen.write(FirstNan(name, cls, _has_nan(given), weights, seen.steps, seen.place()))

    guarded = seen.recorder.probe("nans")(look)

    def leave(module: nn.Module, given: Any, output: Any) -> None:
        if not found and not torch.compiler.is_compiling():
            guarded(module, given, output)

    register_module_forward_hook(leave)


def _has_nan(value: Any) -> bool:
    return any(bool(tensor.isnan().any()) for tensor in _tensors(value, _DEPTH))


def _tensors(value: Any, depth: int) -> Iterator[Tensor]:
    """Yield this rank's parts of the floating-point tensors in nested containers."""
    if isinstance(value, Tensor):
        part = access.local(value)
        if part.is_floating_point() and not part.is_meta and not isinstance(part, FakeTensor):
            yield part
    elif depth and isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(item, depth - 1)
