"""Checkpoints on disk: read without running any code of theirs, and written in one step."""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from torch.distributed.checkpoint import metadata as stored
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.planner import ReadItem
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.serialization import get_unsafe_globals_in_checkpoint

from fsdplint.knowledge.saved_state import METADATA_CLASSES, SHARD_PACKAGES

METADATA = ".metadata"
SHARDS = (
    "holds one rank's shards. Load it with the old code on as many ranks as wrote it, and save it "
    "there under StateDictType.FULL_STATE_DICT or with torch.distributed.checkpoint"
)


class CheckpointError(Exception):
    """A checkpoint cannot be converted; the message says why and what to do."""


def read(path: Path) -> dict[str, Any]:
    """Return the state in a torch.save file, or in a folder of torch.distributed.checkpoint.

    Raises:
        CheckpointError: it is neither, is damaged, or needs code that only a full unpickling runs.
    """
    try:
        state = _read_folder(path) if path.is_dir() else _read_file(path)
    except (CheckpointError, OSError):
        raise
    except Exception as error:  # damaged bytes make the readers fail in any way
        first = str(error).strip().splitlines()[:1]
        reason = f"{type(error).__name__}: {first[0]}" if first else type(error).__name__
        raise CheckpointError(f"cannot be read: {reason}") from error
    if not isinstance(state, Mapping):
        raise CheckpointError(f"holds a {type(state).__name__} instead of a state dict")
    return dict(state)


def _read_file(path: Path) -> Any:
    # A mapped file costs no memory until its tensors are used.
    mapped = zipfile.is_zipfile(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError as error:
        raise _refusal(path) from error


def _refusal(file: Path | BytesIO) -> CheckpointError:
    """Return the error for what torch.load refuses with ``weights_only=True``."""
    refused: list[str] = []
    with suppress(Exception):  # of damaged and of old files it tells nothing
        refused = sorted(get_unsafe_globals_in_checkpoint(file))
    if any(name.startswith(SHARD_PACKAGES) for name in refused):
        return CheckpointError(SHARDS)
    objects = f": {', '.join(refused)}" if refused else ", or it is damaged or no checkpoint"
    return CheckpointError(
        f"holds objects that only code restores, which is never run{objects}. If you trust it, "
        "load it yourself with weights_only=False, and save it without these objects"
    )


class _MetadataUnpickler(pickle.Unpickler):
    """Unpickles the metadata of a distributed checkpoint and no other class or function."""

    def find_class(self, module: str, name: str) -> Any:
        if module in ("pathlib", "pathlib._local"):  # the folder that it was written to
            return PurePosixPath
        if name in METADATA_CLASSES.get(module, ()) or _is_dtype(module, name):
            return super().find_class(module, name)
        raise CheckpointError(f"{METADATA} names {module}.{name}, which may run code")


def _is_dtype(module: str, name: str) -> bool:
    return module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)


class _Reader(FileSystemReader):
    def read_metadata(self, *_args: Any, **_options: Any) -> stored.Metadata:
        with Path(self.path, METADATA).open("rb") as file:
            found = _MetadataUnpickler(file).load()
        if not isinstance(found, stored.Metadata):
            raise CheckpointError(f"{METADATA} holds a {type(found).__name__}")
        return found


class _Planner(DefaultLoadPlanner):
    """Fills a flat state, and unpickles what is not a tensor as safely as the tensors.

    Attributes:
        refused: the errors of what cannot be unpickled so.
    """

    def __init__(self) -> None:
        super().__init__()
        self.refused: list[CheckpointError] = []

    def load_bytes(self, read_item: ReadItem, value: BytesIO) -> None:
        try:
            loaded = torch.load(value, weights_only=True)
        except pickle.UnpicklingError:
            value.seek(0)
            self.refused.append(_refusal(value))
        else:
            self.original_state_dict[read_item.dest_index.fqn] = loaded


def _read_folder(folder: Path) -> dict[str, Any]:
    if not (folder / METADATA).is_file():
        raise CheckpointError(
            f"has no file {METADATA}, so it is not a folder of "
            "torch.distributed.checkpoint. If it holds a file of each rank, load these with the "
            "old code and save them again under StateDictType.FULL_STATE_DICT"
        )
    reader = _Reader(folder)
    metadata = reader.read_metadata()
    flat = {key: _place(kind) for key, kind in metadata.state_dict_metadata.items()}
    planner = _Planner()
    with _without_ranks():
        load(flat, storage_reader=reader, planner=planner)
    if planner.refused:
        raise planner.refused[0]
    return _nested(flat, metadata.planner_data or {})


def _place(kind: stored.STORAGE_TYPES) -> torch.Tensor | None:
    """Return what a part of the state is read into."""
    if isinstance(kind, stored.TensorStorageMetadata):
        return torch.empty(kind.size, dtype=kind.properties.dtype)
    return None


def _nested(flat: dict[str, Any], paths: Mapping[str, tuple[str | int, ...]]) -> dict[str, Any]:
    """Return the state as it was saved; a number in a path is an index of a list."""
    whole: dict[Any, Any] = {}
    for key, value in flat.items():
        *outer, last = paths.get(key, (key,))
        place = whole
        for step in outer:
            place = place.setdefault(step, {})
        place[last] = value
    return {key: _with_lists(value) for key, value in whole.items()}


def _with_lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    parts = {key: _with_lists(part) for key, part in value.items()}
    if parts and all(isinstance(key, int) for key in parts):
        return [parts[index] for index in sorted(parts)]
    return parts


def write(state: dict[str, Any], new: Path, layout: str) -> None:
    """Write ``state`` to ``new``, which appears complete or not at all.

    Args:
        layout: "torch" for a torch.save file, "dcp" for a folder of torch.distributed.checkpoint.

    Raises:
        CheckpointError: something is at ``new``.
        OSError: it cannot be written.
    """
    # In the same folder, so that it can be renamed.
    scratch = Path(tempfile.mkdtemp(prefix=f".{new.name}.", dir=new.parent))
    try:
        written = scratch / new.name
        if layout == "torch":
            torch.save(state, written)
        else:
            with _without_ranks():
                save(state, storage_writer=FileSystemWriter(written))
        expect_nothing_at(new)
        written.rename(new)
    finally:
        shutil.rmtree(scratch)


def expect_nothing_at(new: Path) -> None:
    """Raise an error if something is at ``new``, or its folder is missing.

    Raises:
        CheckpointError: that is so.
    """
    if os.path.lexists(new):
        raise CheckpointError(f"{new} exists; give a path where nothing is")
    if not new.parent.is_dir():
        raise CheckpointError(f"{new.parent} is not a folder")


@contextmanager
def _without_ranks() -> Iterator[None]:
    """Silence what torch says of a process without ranks, and raise errors as they happened."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except CheckpointException as error:  # no Exception; it has that of each rank
            raise next(iter(error.failures.values()))[0] from error
