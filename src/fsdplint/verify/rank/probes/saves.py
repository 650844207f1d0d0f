"""Notes what each write of a checkpoint holds: whose state, which slices, where to."""

from __future__ import annotations

import functools
import importlib.util
import os
import pickle
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import state_dict_saver

from fsdplint.verify.events import Save
from fsdplint.verify.rank.callers import torchs_own
from fsdplint.verify.rank.patch import replace_all
from fsdplint.verify.rank.scratch import Scratch
from fsdplint.verify.rank.seen import Seen
from fsdplint.verify.rank.states import states

LOCK = "scratch.lock"
_DCP = ("save", "async_save", "save_state_dict")


def install(seen: Seen) -> None:
    """Wraps ``torch.save``, ``pickle.dump``, safetensors and distributed checkpoints."""
    recorder = seen.recorder
    scratch = Scratch(str(recorder.root), str(recorder.folder / LOCK))
    scratch.install(recorder)
    own = recorder.probe("scratch")(scratch.own)
    saves = _Saves(seen)
    checkpoints = {name: getattr(state_dict_saver, name) for name in _DCP}
    pairs = [(each, saves.of_checkpoint(name, each)) for name, each in checkpoints.items()]
    expand = getattr(state_dict_saver, "_stateful_to_state_dict", None)
    if expand is not None:
        pairs.append((expand, saves.expanding(expand)))
    of_torch = _Writer("torch.save", "obj", "f")
    replace_all([*pairs, (torch.save, saves.of_file(of_torch, torch.save, own))])
    pickle.dump = saves.of_file(_Writer("pickle.dump", "obj", "file"), pickle.dump, own)
    if importlib.util.find_spec("safetensors") and importlib.util.find_spec("safetensors.torch"):
        import safetensors.torch  # type: ignore[import-not-found, unused-ignore]

        name, refusals = "safetensors.torch.save_file", (TypeError, AttributeError, RuntimeError)
        writer = _Writer(name, "tensors", "filename", refusals)
        save_file = safetensors.torch.save_file
        safetensors.torch.save_file = saves.of_file(writer, save_file, own)


@dataclass(frozen=True)
class _Writer:
    """A function that writes one file.

    Attributes:
        what: its parameter for what is written; `where`: for the file or its path.
        refusals: errors that tell of what is written, not of where to.
    """

    name: str
    what: str
    where: str
    refusals: tuple[type[Exception], ...] = (TypeError, AttributeError, pickle.PicklingError)


class _Saves:
    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._note = seen.recorder.probe("saves")(self._write)
        self._expanded = threading.local()
        self._staged: set[str] = set()

    def of_file(self, writer: _Writer, original: Any, own: Callable[..., None]) -> Any:
        """Wraps a function that writes one file."""

        @functools.wraps(original)
        def save(*args: Any, **kwargs: Any) -> Any:
            given = dict(zip((writer.what, writer.where), args, strict=False)) | kwargs
            value, file = given.get(writer.what), given.get(writer.where)
            if isinstance(file, str | bytes | os.PathLike):
                own(file, keep=False)
            try:
                result = original(*args, **kwargs)
            except writer.refusals as refusal:
                if not torchs_own():
                    error = f"{type(refusal).__name__}: {refusal}"
                    self._note(writer.name, _path(file), value, error=error)
                raise
            if not torchs_own():
                self._note(writer.name, _path(file), value)
            return result

        return save

    def of_checkpoint(self, name: str, original: Any) -> Any:
        """Wraps a function that saves a distributed checkpoint."""
        writer = f"torch.distributed.checkpoint.{name}"

        @functools.wraps(original)
        def save(*args: Any, **kwargs: Any) -> Any:
            self._expanded.value = None
            path = _checkpoint(args, kwargs)
            if name == "async_save":
                self._staged.add(path)
            result = original(*args, **kwargs)
            if not torchs_own() and not (name == "save" and self._of_async_save(path)):
                given = args[0] if args else kwargs.get("state_dict")
                value = self._expanded.value or given
                together = dist.is_initialized() and not kwargs.get("no_dist", False)
                self._note(writer, path, value, distributed=together)
            return result

        return save

    def _of_async_save(self, path: str) -> bool:
        """Says whether a save goes on in a thread that an ``async_save`` has begun.

        torch 2.6 hands `save` itself to its pool of threads, which no code of torch's is seen in.
        """
        return path in self._staged and self._seen.recorder.place() is None

    def expanding(self, original: Any) -> Any:
        """Keeps the state dicts that DCP asks stateful objects for; asking again might not be
        free of effects."""

        @functools.wraps(original)
        def expand(*args: Any, **kwargs: Any) -> Any:
            self._expanded.value = original(*args, **kwargs)
            return self._expanded.value

        return expand

    def _write(
        self, writer: str, path: str, value: Any, *, distributed: bool = False, error: str = ""
    ) -> None:
        tensors, found = states(self._seen, value)
        if tensors == 0 and not isinstance(value, Mapping):
            return
        recorder = self._seen.recorder
        recorder.write(
            Save(
                writer,
                _relative(path, recorder.root) if path else "",
                distributed,
                tensors,
                found,
                self._seen.steps,
                recorder.place(),
                error,
            )
        )


def _path(file: Any) -> str:
    """Returns the path of a file that is given as one, or is open under one."""
    name = file if isinstance(file, str | bytes | os.PathLike) else getattr(file, "name", "")
    return os.fsdecode(name) if isinstance(name, str | bytes | os.PathLike) else ""


def _relative(path: str, root: Path) -> str:
    """Returns a path as it is known to the user; links on the way are not followed."""
    absolute = os.path.abspath(path)  # noqa: PTH100  -- `Path.resolve` follows links
    return absolute.removeprefix(f"{root}{os.sep}")


def _checkpoint(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    for value in (kwargs.get("checkpoint_id"), kwargs.get("storage_writer"), *args[1:]):
        path = _path(getattr(value, "path", getattr(value, "checkpoint_id", value)))
        if path:
            return path
    return ""
