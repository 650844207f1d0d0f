"""The states of all random number generators of a rank."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from typing import Any

import torch


def take(cuda: bool) -> dict[str, Any]:
    """Record the present states.

    Args:
        cuda: with that of this rank's device.
    """
    states: dict[str, Any] = {"cpu": torch.get_rng_state(), "python": random.getstate()}
    if cuda:
        states["cuda"] = torch.cuda.get_rng_state()
    if (numpy := sys.modules.get("numpy")) is not None:
        states["numpy"] = numpy.random.get_state()
    return states


def restore(states: Mapping[str, Any]) -> None:
    """Make the states what they were."""
    torch.set_rng_state(states["cpu"])
    random.setstate(states["python"])
    if "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"])
    if "numpy" in states and (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.set_state(states["numpy"])
