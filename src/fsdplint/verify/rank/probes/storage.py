"""Find what is never written: what gets storage without values is filled with a mark.

The mark is a NaN with bits of its own, so that what the script computes from it shows too. Since
such bits survive arithmetic, each buffer has another mark: what a forward writes to one, as to a
cache, has the mark of what it comes from. Integers and truth values have no bits that no program
uses, and are left as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from fsdplint.verify.rank import access
from fsdplint.verify.rank.patch import wrap
from fsdplint.verify.rank.registry import Seen

_MARKS = {
    torch.float64: (torch.int64, 0x7FF8_5A5A_0000_0000, 1 << 32),
    torch.float32: (torch.int32, 0x7FC5_0000, 1 << 16),
    torch.bfloat16: (torch.int16, 0x7FC1, 62),
    torch.float16: (torch.int16, 0x7E01, 500),
}
"""For each type the integers of its size, the first mark as one, and how many there are."""


def install(seen: Seen) -> None:
    """Wrap ``to_empty``, and ``empty_like`` where it gives storage to what has none."""
    guard = seen.recorder.probe("storage")
    mark, mark_all, note = guard(_mark), guard(_mark_all), guard(_note)

    def to_empty(original: Any, module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        result = original(module, *args, **kwargs)
        mark_all(seen, module.modules() if kwargs.get("recurse", True) else [module])
        if not all(tensor.is_meta for tensor in chain(module.parameters(), module.buffers())):
            note(seen)
        return result

    def empty_like(original: Any, like: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(like, *args, **kwargs)
        if isinstance(like, Tensor) and like.is_meta and not result.is_meta:
            mark(result, 0)
            note(seen)
        return result

    wrap(nn.Module, "to_empty", to_empty)
    wrap(torch, "empty_like", empty_like)


def unwritten(tensor: Tensor, number: int = 0) -> int:
    """Return how many elements of this rank's part of a tensor still have the mark."""
    bits, mark = _bits(tensor, number)
    return 0 if bits is None else int((bits == mark).sum())


def _note(seen: Seen) -> None:
    place = seen.place()
    if place is not None and place not in seen.emptied:
        seen.emptied.append(place)


def _mark_all(seen: Seen, modules: Iterable[nn.Module]) -> None:
    """Mark parameters with one mark, and each buffer with another."""
    for module in modules:
        for parameter in module._parameters.values():
            _mark(parameter, 0)
        for key, buffer in module._buffers.items():
            _mark(buffer, seen.mark_buffer(module, key))


def _mark(tensor: Tensor | None, number: int) -> None:
    bits, mark = (None, 0) if tensor is None else _bits(tensor, number)
    if bits is not None:
        bits.fill_(mark)


def _bits(tensor: Tensor, number: int) -> tuple[Tensor | None, int]:
    """Return the bits of this rank's part as integers, and the mark; None where it has no mark."""
    part = access.local(tensor)
    if part.is_complex():
        part = torch.view_as_real(part)
    if part.dtype not in _MARKS or part.is_meta or isinstance(part, FakeTensor):
        return None, 0
    integers, first, marks = _MARKS[part.dtype]
    return part.view(integers), first + number % marks
