"""Note what each write of a checkpoint holds: whose state, which slices, where to."""

from __future__ import annotations

import functools
import importlib.util
import os
import pickle
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import state_dict_saver

from fsdplint.verify.events import Save
from fsdplint.verify.rank.equivalence.record import Record
from fsdplint.verify.rank.patch import wrap
from fsdplint.verify.rank.recorder import called_by_torch
from fsdplint.verify.rank.registry import Seen
from fsdplint.verify.rank.resume.keep import Keeper
from fsdplint.verify.rank.scratch import Scratch
from fsdplint.verify.rank.states import live_average, states

LOCK = "scratch.lock"
_DCP = ("save", "async_save", "save_state_dict")


def install(seen: Seen, keeper: Keeper | None = None, record: Record | None = None) -> None:
    """Wrap ``torch.save``, ``pickle.dump``, safetensors and distributed checkpoints."""
    recorder = seen.recorder
    scratch = Scratch(str(recorder.root), str(recorder.folder / LOCK))
    scratch.install(recorder)
    saves = _Saves(seen, recorder.probe("scratch")(scratch.own), keeper, record)
    for name in _DCP:
        wrap(state_dict_saver, name, functools.partial(saves.checkpoint, name))
    wrap(state_dict_saver, "_stateful_to_state_dict", saves.expand)
    of_torch, of_pickle = _Writer("torch.save", "obj", "f"), _Writer("pickle.dump", "obj", "file")
    wrap(torch, "save", functools.partial(saves.file, of_torch))
    wrap(pickle, "dump", functools.partial(saves.file, of_pickle))
    if (module := safetensors_module()) is not None:
        name, refusals = "safetensors.torch.save_file", (TypeError, AttributeError, RuntimeError)
        writer = _Writer(name, "tensors", "filename", refusals)
        wrap(module, "save_file", functools.partial(saves.file, writer))


def safetensors_module() -> ModuleType | None:
    """Return ``safetensors.torch``, loaded, if it is installed."""
    if importlib.util.find_spec("safetensors") and importlib.util.find_spec("safetensors.torch"):
        return importlib.import_module("safetensors.torch")
    return None


@dataclass(frozen=True)
class _Writer:
    """A function that writes one file.

    Attributes:
        what: its parameter for what is written; `where`: for the file or its path.
        refusals: errors about what is written, not about where to.
    """

    name: str
    what: str
    where: str
    refusals: tuple[type[Exception], ...] = (TypeError, AttributeError, pickle.PicklingError)


class _Saves:
    """The saves of this rank; `own` makes a path the scratch copy's own."""

    def __init__(
        self, seen: Seen, own: Callable[..., None], keeper: Keeper | None, record: Record | None
    ) -> None:
        self._seen, self._own, self._keeper, self._record = seen, own, keeper, record
        self._note = seen.recorder.probe("saves")(self._write)
        self._find_average = seen.recorder.probe("averages")(live_average)
        self._expanded = threading.local()
        self._staged: set[str] = set()

    def file(self, writer: _Writer, original: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a function that writes one file."""
        given = dict(zip((writer.what, writer.where), args, strict=False)) | kwargs
        value, file = given.get(writer.what), given.get(writer.where)
        if isinstance(file, str | bytes | os.PathLike):
            self._own(file, keep=False)
        try:
            result = original(*args, **kwargs)
        except writer.refusals as refusal:
            if not called_by_torch():
                error = f"{type(refusal).__name__}: {refusal}"
                self._note(writer.name, _path(file), value, error=error)
            raise
        if not called_by_torch():
            self._note(writer.name, _path(file), value)
        return result

    def checkpoint(self, name: str, original: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a function that saves a distributed checkpoint."""
        self._expanded.value = None
        path = _checkpoint(args, kwargs)
        if name == "async_save":
            self._staged.add(path)
        result = original(*args, **kwargs)
        if not called_by_torch() and not (name == "save" and self._of_async_save(path)):
            value = self._expanded.value or (args[0] if args else kwargs.get("state_dict"))
            together = dist.is_initialized() and not kwargs.get("no_dist", False)
            writer = f"torch.distributed.checkpoint.{name}"
            self._note(writer, path, value, distributed=together, result=result)
        return result

    def _of_async_save(self, path: str) -> bool:
        """True if a save runs in a thread that an ``async_save`` has started.

        torch 2.6 hands `save` itself to its pool of threads, which no code of torch's is seen in.
        """
        return path in self._staged and self._seen.place() is None

    def expand(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        """Keep the state dicts that DCP gets from stateful objects; asking again might not be
        free of effects."""
        self._expanded.value = original(*args, **kwargs)
        return self._expanded.value

    def _write(
        self,
        writer: str,
        path: str,
        value: Any,
        *,
        distributed: bool = False,
        error: str = "",
        result: object = None,
    ) -> None:
        """Write down a save, unless it holds no tensors and is no state dict."""
        tensors, found = states(self._seen, value)
        if tensors == 0 and not isinstance(value, Mapping):
            return
        recorder = self._seen.recorder
        save = Save(
            writer,
            _relative(path, recorder.root) if path else "",
            distributed,
            tensors,
            found,
            self._seen.steps,
            recorder.place(),
            error,
            self._find_average(self._seen, value, path) or "",
        )
        if self._keeper is not None:
            self._keeper.saved(save, result)
        if self._record is not None:
            self._record.saved(save, value)
        recorder.write(save)


def _path(file: Any) -> str:
    """Return the path of a file that is given as one, or is open under one."""
    name = file if isinstance(file, str | bytes | os.PathLike) else getattr(file, "name", "")
    return os.fsdecode(name) if isinstance(name, str | bytes | os.PathLike) else ""


def _relative(path: str, root: Path) -> str:
    """Return a path as it is known to the user; links on the way are not followed."""
    absolute = os.path.abspath(path)  # noqa: PTH100  -- `Path.resolve` follows links
    return absolute.removeprefix(f"{root}{os.sep}")


def _checkpoint(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    for value in (kwargs.get("checkpoint_id"), kwargs.get("storage_writer"), *args[1:]):
        path = _path(getattr(value, "path", getattr(value, "checkpoint_id", value)))
        if path:
            return path
    return ""
