"""Random numbers of the CUDA devices: a generator for each, apart from the CPU's.

A script that seeds `torch.cuda` differently on every rank keeps what it draws on the CPU equal on
all of them, such as initial weights and the order of data. Factories on "cuda" draw from here;
dropout and in-place filling draw from the CPU's generator, whatever the tensor is taken to lie on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from fsdplint.verify.rank.shim.devices import GENERATOR, MACHINE, cuda_index

FACTORIES = frozenset({"rand", "randn", "randint", "randperm"})

# CUDA's generators start from numbers of their own on each rank; these are the same in each run.
_SEED = 67280421310721

default_generators: list[torch.Generator] = []


def install() -> None:
    """Make the generators."""
    first = _SEED + MACHINE.local_rank * MACHINE.count
    default_generators[:] = [GENERATOR().manual_seed(first + n) for n in range(MACHINE.count)]


def draw_on_cuda(kwargs: dict[str, Any]) -> None:
    """Make a factory draw from the current device's generator, unless one is named."""
    if kwargs.get("generator") is None:
        kwargs["generator"] = default_generators[MACHINE.current]


def manual_seed(seed: int) -> None:
    default_generators[MACHINE.current].manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    for generator in default_generators:
        generator.manual_seed(int(seed))


def seed() -> None:
    default_generators[MACHINE.current].seed()


def seed_all() -> None:
    manual_seed_all(default_generators[0].seed())


def initial_seed() -> int:
    return default_generators[MACHINE.current].initial_seed()


def get_rng_state(device: Any = "cuda") -> torch.Tensor:
    return default_generators[cuda_index(device)].get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    return [generator.get_state() for generator in default_generators]


def set_rng_state(new_state: torch.Tensor, device: Any = "cuda") -> None:
    default_generators[cuda_index(device)].set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    for generator, state in zip(default_generators, new_states, strict=False):
        generator.set_state(state)
