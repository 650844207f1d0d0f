"""The parameter names of a checkpoint: without wrappers, and of optimizers that number them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from fsdplint.checkpoints.files import SHARDS, CheckpointError
from fsdplint.knowledge.fsdp import FLAT_PARAMETER
from fsdplint.knowledge.saved_state import (
    BATCH_COUNT,
    DDP_NAME,
    GROUP_NAMES,
    RUNNING_STATISTICS,
    WRAPPER_NAMES,
)

Shape = tuple[int, ...]
_LIST = (  # without its first letter
    "ist the optimizer's parameter names, one a line and in its order, in a file for "
    "--parameter-names"
)
_ASK = f"L{_LIST}"


def without_wrappers(names: Iterable[str], ddp: bool) -> dict[str, str]:
    """Return each name without what wrappers put into it.

    Args:
        ddp: take DDP's name off, too, if every name begins with it.

    Raises:
        CheckpointError: two names become one, or some belong to parameters that FSDP1 flattened.
    """
    parts = {name: [p for p in name.split(".") if p not in WRAPPER_NAMES] for name in names}
    if any(FLAT_PARAMETER in path for path in parts.values()):
        raise CheckpointError(SHARDS)
    if ddp and all(path[0] == DDP_NAME and len(path) > 1 for path in parts.values()):
        parts = {name: path[1:] for name, path in parts.items()}
    clean = {name: ".".join(path) for name, path in parts.items()}
    if len(set(clean.values())) < len(clean):
        raise CheckpointError("two names are the same without the names of wrappers")
    return clean


def names_by_index(
    groups: Sequence[Mapping[str, Any]],
    shapes: Mapping[int, Shape | None],
    models: Sequence[Mapping[str, Any]],
    given: Sequence[str] | None,
    in_model_order: bool,
) -> dict[int, str]:
    """Return the name of each parameter that an optimizer's state dict numbers.

    Args:
        shapes: those of the state of each number, None where they do not show the parameter's.
        models: the state dicts of models beside it, with clean names.
        given: the names in the optimizer's order, if the user gives them.
        in_model_order: each group has its parameters in the order of the model, as the user says.

    Raises:
        CheckpointError: the names are not known, or do not fit the shapes.
    """
    numbers = [index for group in groups for index in group["params"]]
    if given is None and all(GROUP_NAMES in group for group in groups):
        listed = [str(name) for group in groups for name in group[GROUP_NAMES]]
        given = list(without_wrappers(listed, ddp=True).values())
    if given is not None:
        return _checked(numbers, given, shapes, models)
    answers = {_frozen(_guessed(groups, shapes, m, in_model_order)) for m in models}
    if len(answers) != 1:
        raise CheckpointError(
            "the optimizer state numbers the parameters, and "
            + ("two models with different names are beside it" if models else "no model is beside")
            + f". {_ASK}"
        )
    return dict(answers.pop())


def _frozen(names: Mapping[int, str]) -> tuple[tuple[int, str], ...]:
    return tuple(names.items())


def _checked(
    numbers: Sequence[int],
    names: Sequence[str],
    shapes: Mapping[int, Shape | None],
    models: Sequence[Mapping[str, Any]],
) -> dict[int, str]:
    if len(names) != len(numbers) or len(set(names)) != len(names):
        raise CheckpointError(
            f"the optimizer's parameters are {len(numbers)}, but {len(set(names))} different "
            "names are given"
        )
    for number, name in zip(numbers, names, strict=True):
        for model in models:
            if name not in model:
                raise CheckpointError(f"no parameter of the model is named {name}")
            if not _fits(shapes.get(number), model[name]):
                raise _misfit(number, shapes[number], name, model[name])
    return dict(zip(numbers, names, strict=True))


def _misfit(number: int, shape: Shape | None, name: str, weight: torch.Tensor) -> CheckpointError:
    return CheckpointError(
        f"the optimizer state of parameter {number} has the shape {shape}, but {name} has "
        f"{tuple(weight.shape)}"
    )


def _fits(shape: Shape | None, weight: torch.Tensor) -> bool:
    return shape is None or shape == tuple(weight.shape)


def _guessed(
    groups: Sequence[Mapping[str, Any]],
    shapes: Mapping[int, Shape | None],
    model: Mapping[str, Any],
    in_model_order: bool,
) -> dict[int, str]:
    weights = _parameters(model)
    sizes = {tuple(weight.shape) for weight in weights.values()}
    for number, shape in shapes.items():
        if shape is not None and shape not in sizes:
            raise CheckpointError(
                f"the optimizer state of parameter {number} has the shape {shape}, which no "
                "parameter of the model has. FSDP1's optimizer.state_dict() holds one rank's "
                "flattened shards: save FSDP.optim_state_dict(model, optimizer) instead. "
                "--model-only leaves the optimizer out"
            )
    if in_model_order:
        named = [pair for group in groups for pair in _ordered(group, shapes, weights)]
        if len({name for _, name in named}) < len(named):
            raise CheckpointError(f"the shapes fit two groups to the same parameter. {_ASK}")
        return dict(named)
    return _by_shape([n for group in groups for n in group["params"]], shapes, weights)


def _parameters(model: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return what may be parameters: tied weights once, and no known buffers."""
    found: dict[str, torch.Tensor] = {}
    seen = set()
    for name, value in model.items():
        layer, _, last = name.rpartition(".")
        counted = f"{layer}.{BATCH_COUNT}" if layer else BATCH_COUNT
        buffer = last in RUNNING_STATISTICS and counted in model
        if isinstance(value, torch.Tensor) and value.is_floating_point() and not buffer:
            place = (value.data_ptr(), value.shape) if value.numel() else name
            if place not in seen:
                found[name] = value
            seen.add(place)
    return found


def _by_shape(
    numbers: Sequence[int],
    shapes: Mapping[int, Shape | None],
    weights: Mapping[str, torch.Tensor],
) -> dict[int, str]:
    """Return the names that the shapes alone prove: no other parameter has the same one."""
    names: dict[int, str] = {}
    for number in numbers:
        shape = shapes.get(number)
        fitting = [name for name, weight in weights.items() if _fits(shape, weight)]
        if shape is None or len(fitting) != 1 or fitting[0] in names.values():
            raise CheckpointError(
                "the optimizer state numbers the parameters, and their shapes do not show which "
                "is which. If the optimizer was built from model.parameters(), or each of its "
                "groups has a part of them in the same order, pass --in-model-order. Otherwise "
                f"l{_LIST}"
            )
        names[number] = fitting[0]
    return names


def _ordered(
    group: Mapping[str, Any],
    shapes: Mapping[int, Shape | None],
    weights: Mapping[str, torch.Tensor],
) -> list[tuple[int, str]]:
    """Return the names of a group whose parameters have the order of the model.

    Raises:
        CheckpointError: the shapes fit no such part of the model, or more than one.
    """
    numbers = group["params"]
    first = _embedded(numbers, shapes, list(weights), weights)
    last = _embedded(numbers[::-1], shapes, list(weights)[::-1], weights)[::-1]
    if len(first) < len(numbers) or first != last:
        fit = "fit no" if len(first) < len(numbers) else "fit more than one"
        raise CheckpointError(
            f"the shapes of the optimizer state {fit} part of the model in this order. {_ASK}"
        )
    return list(zip(numbers, first, strict=True))


def _embedded(
    numbers: Sequence[int],
    shapes: Mapping[int, Shape | None],
    names: Sequence[str],
    weights: Mapping[str, torch.Tensor],
) -> list[str]:
    """Return the earliest names, in order, that fit the numbers; fewer if they do not."""
    rest = iter(names)
    found = []
    for number in numbers:
        name = next((n for n in rest if _fits(shapes.get(number), weights[n])), None)
        if name is None:
            break
        found.append(name)
    return found
