"""Convert a checkpoint of FSDP1, DDP or plain code to one that FSDP2 loads.

FSDP2 loads the layout of `get_model_state_dict` and `get_optimizer_state_dict`: the names of a
model without those of wrappers, and an optimizer state that is kept by these names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from fsdplint.checkpoints import files
from fsdplint.checkpoints.files import SHARDS, CheckpointError
from fsdplint.checkpoints.names import Shape, names_by_index, without_wrappers
from fsdplint.knowledge.saved_state import DDP_NAME, EXTRA_STATE, GROUP_NAMES, OPTIMIZER_ENTRIES

Keys = tuple[str | int, ...]
"""Where something is in a checkpoint: the keys and indices that lead there."""
Place = tuple[int, torch.Size]
"""Where a tensor is in memory, and its shape."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the user says of a checkpoint.

    Attributes:
        layout: "dcp" or "torch", that of the new one.
        names: the optimizer's parameter names in its order, if they are given.
        in_model_order: whether each group has its parameters in the order of the model.
        model_only: leave the optimizer states out.
    """

    layout: str
    names: tuple[str, ...] | None = None
    in_model_order: bool = False
    model_only: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """A model or optimizer in a checkpoint.

    Attributes:
        value: what the new checkpoint has instead, None if that leaves it out.
        shown: what it was, and what has changed.
    """

    keys: Keys
    value: dict[str, Any] | None
    shown: str


def convert(old: Path, new: Path, options: Options) -> list[str]:
    """Write the checkpoint ``old`` to ``new`` as FSDP2 loads it; return what it has, in lines.

    Raises:
        CheckpointError: that cannot be done; nothing is at ``new`` then.
        OSError: a file cannot be read or written.
    """
    if old.resolve() in new.resolve().parents:
        raise CheckpointError(f"{new} is in {old}, which is never changed")
    files.expect_nothing_at(new)
    try:
        state = files.read(old)
        _expect_no_shards(state)
        entries = _entries(state, options)
    except CheckpointError as error:
        raise CheckpointError(f"{old}: {error}") from error
    changed = {entry.keys: entry.value for entry in entries}
    files.write(_rebuilt(state, changed, ()), new, options.layout)
    lines = [f"{_shown(entry.keys)}: {entry.shown}" for entry in entries]
    rest = [str(key) for key in state if not any(keys[:1] in ((), (key,)) for keys in changed)]
    return [*lines, *(f"{key}: as it was" for key in rest)]


def _shown(keys: Keys) -> str:
    return ".".join(map(str, keys)) or "state dict"


def _expect_no_shards(value: Any) -> None:
    """Raise an error if a tensor is one rank's.

    Raises:
        CheckpointError: one is.
    """
    if isinstance(value, DTensor):
        raise CheckpointError(SHARDS)
    parts = value.values() if isinstance(value, Mapping) else value
    if isinstance(value, (Mapping, list, tuple)):
        for part in parts:
            _expect_no_shards(part)


def _entries(state: dict[str, Any], options: Options) -> list[Entry]:
    """Return the models and optimizers of a checkpoint.

    Raises:
        CheckpointError: there is none, or one cannot be converted.
    """
    parts = dict(_parts(state, ()))
    optimizers = {keys: part for keys, part in parts.items() if _is_optimizer(part)}
    # An optimizer state by name has no name of DDP's: what begins as one is the model's own.
    own = any(
        str(name).startswith(f"{DDP_NAME}.")
        for part in optimizers.values()
        for name in _listed(part)
    )
    entries = {
        keys: _model(keys, part, ddp=not own)
        for keys, part in parts.items()
        if keys not in optimizers
    }
    models = [entry.value for entry in entries.values() if entry.value is not None]
    for keys, part in optimizers.items():
        entries[keys] = (
            Entry(keys, None, "optimizer state, left out")
            if options.model_only
            else _optimizer(keys, part, models, options)
        )
    if all(entry.value is None for entry in entries.values()):
        raise CheckpointError("holds no state dict of a model or an optimizer to convert")
    return list(entries.values())


def _parts(value: Any, keys: Keys) -> Iterator[tuple[Keys, Mapping[str, Any]]]:
    """Yield the state dicts of models and optimizers, and the keys that lead to each."""
    if isinstance(value, Mapping):
        if _is_optimizer(value) or _is_model(value):
            yield keys, value
        else:
            for key, part in value.items():
                yield from _parts(part, (*keys, key))
    elif isinstance(value, (list, tuple)):
        for index, part in enumerate(value):
            yield from _parts(part, (*keys, index))


def _is_optimizer(value: Mapping[str, Any]) -> bool:
    return (
        value.keys() >= OPTIMIZER_ENTRIES
        and isinstance(value["state"], Mapping)
        and isinstance(value["param_groups"], (list, tuple))
        and all(isinstance(entry, Mapping) for entry in value["state"].values())
        and all(
            isinstance(group, Mapping) and isinstance(group.get("params"), (list, tuple))
            for group in value["param_groups"]
        )
    )


def _is_model(value: Mapping[str, Any]) -> bool:
    """True if names lead to weights, and to nothing but them and what modules add themselves."""
    tensors = [part for part in value.values() if isinstance(part, torch.Tensor)]
    return any(part.is_floating_point() for part in tensors) and all(
        isinstance(name, str) and (isinstance(part, torch.Tensor) or name.endswith(EXTRA_STATE))
        for name, part in value.items()
    )


def _rebuilt(value: Any, changed: Mapping[Keys, Any], keys: Keys) -> Any:
    """Return ``value`` with what has changed, and without what is left out."""
    if keys in changed:
        return changed[keys]
    if not any(place[: len(keys)] == keys for place in changed):
        return value
    parts = value.items() if isinstance(value, Mapping) else enumerate(value)
    rebuilt = {
        key: _rebuilt(part, changed, (*keys, key))
        for key, part in parts
        if changed.get((*keys, key), value) is not None
    }
    return rebuilt if isinstance(value, Mapping) else list(rebuilt.values())


def _model(keys: Keys, part: Mapping[str, Any], *, ddp: bool) -> Entry:
    names = without_wrappers(part, ddp)
    shown = f"model, {_count(len(names), 'tensor')}"
    return Entry(keys, {new: part[old] for old, new in names.items()}, shown + _cleaned(names))


def _cleaned(names: Mapping[str, str]) -> str:
    different = [(old, new) for old, new in names.items() if old != new]
    if not different:
        return ""
    old, new = different[0]
    return f"; took wrappers out of {_count(len(different), 'name')}: {old} is now {new}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s'[: number != 1]}"


def _listed(optimizer: Mapping[str, Any]) -> list[Any]:
    return [entry for group in optimizer["param_groups"] for entry in group["params"]]


def _optimizer(
    keys: Keys, part: Mapping[str, Any], models: list[dict[str, Any]], options: Options
) -> Entry:
    """Return an optimizer state by names.

    Raises:
        CheckpointError: the names are not known, or FSDP1 has lost a part of the state.
    """
    listed = _listed(part)
    state = {_key(name): entry for name, entry in part["state"].items()}
    names: dict[Any, str]
    if all(isinstance(entry, int) for entry in listed):
        shapes = {number: _shape(entry) for number, entry in state.items()}
        given = (options.names, options.in_model_order)
        names = names_by_index(part["param_groups"], shapes, models, *given)
        how = "by number before"
    elif all(isinstance(entry, str) for entry in listed):
        names = clean = without_wrappers(listed, ddp=False)
        how = "by name" + _cleaned(clean)
    else:
        raise CheckpointError("the optimizer state lists parameters neither by name nor by number")
    if unlisted := state.keys() - names.keys():
        raise CheckpointError(f"the optimizer state of {min(map(str, unlisted))} is in no group")
    groups = [_group(group, names, options.layout) for group in part["param_groups"]]
    own, shared = _own_tensors({names[name]: entry for name, entry in state.items()})
    counts = f"{_count(len(own), 'parameter')} in {_count(len(groups), 'group')}"
    copied = f"; separated {_count(shared, 'tensor')} that parameters shared" if shared else ""
    value = {**part, "state": own, "param_groups": groups}
    return Entry(keys, value, f"optimizer state of {counts}, {how}{copied}")


def _group(group: Mapping[str, Any], names: Mapping[Any, str], layout: str) -> dict[str, Any]:
    """Return a group by names, so that optimizers with and without named parameters load it.

    With named parameters, `dcp.load` requires the names. Without them, `set_optimizer_state_dict`
    fails on names in a full state dict, and `dcp.load` ignores them. Measured with torch 2.13.
    """
    listed = [names[parameter] for parameter in group["params"]]
    settings = {key: value for key, value in group.items() if key != GROUP_NAMES}
    return {**settings, "params": listed, **({GROUP_NAMES: listed} if layout == "dcp" else {})}


def _key(name: Any) -> Any:
    """Return a parameter's key; a distributed checkpoint makes text of numbers."""
    return int(name) if isinstance(name, str) and name.isdecimal() else name


def _shape(entry: Mapping[str, Any]) -> Shape | None:
    """Return the shape of a parameter if all its state has one."""
    shapes = {
        tuple(part.shape) for part in entry.values() if isinstance(part, torch.Tensor) and part.ndim
    }
    return shapes.pop() if len(shapes) == 1 else None


def _own_tensors(
    state: Mapping[str, Mapping[str, Any]],
) -> tuple[dict[str, dict[str, Any]], int]:
    """Return the state with a tensor for each entry, and how many parameters had another's.

    With ``use_orig_params=False``, FSDP1 gives all parameters of a unit the same ``step``: loaded
    so, an optimizer counts it up once for each of them.

    Raises:
        CheckpointError: two entries of a parameter are the same tensor.
    """
    seen: set[Place] = set()
    shared = 0
    own: dict[str, dict[str, Any]] = {}
    for name, entry in state.items():
        places = _places(entry)
        own[name] = dict(entry)
        for key, place in places.items():
            shared += place in seen
            # A part of a larger tensor would be saved with the whole of it.
            larger = entry[key].untyped_storage().nbytes() > entry[key].nbytes
            if place in seen or larger:
                own[name][key] = entry[key].clone()
        seen.update(places.values())
    return own, shared


def _places(entry: Mapping[str, Any]) -> dict[str, Place]:
    """Return where the tensors of a parameter's state are in memory.

    Raises:
        CheckpointError: two are at the same place.
    """
    places: dict[str, Place] = {}
    for key, part in entry.items():
        if isinstance(part, torch.Tensor) and part.numel():
            place = (part.data_ptr(), part.shape)
            for other in (other for other in places if places[other] == place):
                raise CheckpointError(
                    f"the optimizer's {other} and {key} are one tensor, so one of them is lost. "
                    "FSDP1 does that on CPU ranks with use_orig_params=True: save it again with "
                    "offload_to_cpu=False, or pass --model-only to leave the optimizer out"
                )
            places[key] = place
    return places
