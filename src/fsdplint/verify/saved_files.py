"""Checkpoint files after a run: how many tensors each holds, read without torch.

Nothing of a pickle is run: every class and function it names becomes an inert stand-in.
"""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_TENSORS = frozenset(
    f"torch._utils._rebuild_{name}"
    for name in ("tensor", "tensor_v2", "tensor_v3", "parameter", "parameter_with_state")
) | {"torch._tensor._rebuild_from_type_v2", "torch._utils._rebuild_wrapper_subclass"}
"""What `torch.save` rebuilds tensors, and subclasses such as DTensor, with (torch 2.6 to 2.15)."""
_MOST = 100 * 2**20
"""Bytes of a header from which a file is not looked at."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One file.

    Attributes:
        tensors: entries, nested ones included.
        broken: why it cannot be read; empty for a sound file.
    """

    tensors: int
    broken: str = ""


def look(root: Path, paths: Iterable[str]) -> dict[str, Stored]:
    """Return what the files hold that exist and are in the format of ``torch.save`` or safetensors.

    Args:
        paths: relative to `root`, or absolute.
    """
    return {
        path: stored
        for path in paths
        if (root / path).is_file() and (stored := _stored(root / path)) is not None
    }


def _stored(file: Path) -> Stored | None:
    try:
        if file.suffix == ".safetensors":
            return Stored(_in_safetensors(file))
        return _in_zip(file) if _begins(file, b"PK") else None
    except (OSError, ValueError, struct.error, zipfile.BadZipFile) as error:
        return Stored(0, f"{type(error).__name__}: {error}")


def _begins(file: Path, magic: bytes) -> bool:
    with file.open("rb") as stream:
        return stream.read(len(magic)) == magic


def _in_safetensors(file: Path) -> int:
    with file.open("rb") as stream:
        size = struct.unpack("<Q", stream.read(8))[0]
        header = json.loads(stream.read(min(size, _MOST)))
    return sum(name != "__metadata__" for name in header)


def _in_zip(file: Path) -> Stored | None:
    with zipfile.ZipFile(file) as archive:
        entry = next((i for i in archive.infolist() if i.filename.endswith("/data.pkl")), None)
        if entry is None or entry.file_size > _MOST:
            return None
        data = archive.read(entry)
    try:
        value = _Inert(io.BytesIO(data)).load()
    except _UNREADABLE:
        return None
    return Stored(sum(1 for _ in _tensors(value, 0)))


_UNREADABLE = (pickle.UnpicklingError, AttributeError, EOFError, LookupError, TypeError, ValueError)
"""How a pickle fails to load; such a file says nothing."""


class _StandIn:
    """An inert stand-in for a class or function of a pickle."""

    of = ""
    state: Any = None

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __setitem__(self, key: Any, value: Any) -> None:
        self.state = {**self.state, key: value} if isinstance(self.state, dict) else {key: value}

    def append(self, _: Any) -> None: ...

    def extend(self, _: Any) -> None: ...


class _Inert(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        return type(name, (_StandIn,), {"of": f"{module}.{name}"})

    def persistent_load(self, pid: Any) -> Any:
        return pid


def _tensors(value: Any, depth: int) -> Iterator[Any]:
    """Yield the tensors in an inert pickle, nested ones included."""
    if depth > 20:
        return
    if isinstance(value, _StandIn):
        if value.of in _TENSORS:
            yield value
        else:
            yield from _tensors(value.state, depth + 1)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item, depth + 1)
