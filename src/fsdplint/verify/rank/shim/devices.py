"""What replaces what when a script written for CUDA and NCCL runs on CPU and gloo.

| the script says                              | this process does                              |
|----------------------------------------------|------------------------------------------------|
| device "cuda", "cuda:1", 1, device("cuda",1) | real CPU tensors                               |
| backend "nccl", "cuda:nccl", none            | gloo                                           |
| a mesh on "cuda"                             | a mesh on "cpu"                                |
| reduction AVG, PREMUL_SUM                    | multiplied before a SUM, as NCCL does          |
| autocast and gradient scaling on "cuda"      | the same on "cpu", float16 where none is named |
| streams, events                              | everything is in order already                 |
| random numbers made by factories on "cuda"   | a generator per device, apart from the CPU's   |
| device memory                                | resident memory of the process                 |

A tensor tells the truth: its `device` is "cpu" and `is_cuda` is False, since PyTorch's own code
asks the same questions and would take CUDA's kernels. A device that the script made,
`torch.device("cuda", 0)`, stays what it is, and is mapped where it is used. Where a CUDA function
gets the device of a tensor, "cpu" stands for the current device, and so does -1, which is what
`get_device` tells of such a tensor.

Copies follow the words. Naming the CPU copies, as it would from a GPU: `.cpu()`, `.to("cpu")`,
`.to(torch.device("cpu"))`. A device read off a tensor does not, and neither do `.cuda()` and
`.to("cuda")`, as for a tensor that is already there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch

# `tensors` and `streams` replace these three; here is what they always were.
DEVICE = torch.device
GENERATOR = torch.Generator
STREAM = torch.Stream

# Where CUDA's tensors really are, and the CPU that a script names: equal, and distinguished by
# identity. Reading a tensor's device always makes another object.
CPU = DEVICE("cpu")
HOST = DEVICE("cpu")

BACKENDS = {"nccl": "gloo"}


class Unmappable(RuntimeError):
    """Something of CUDA that has no counterpart on CPU; the message is one plain sentence."""


@dataclass(slots=True)
class Machine:
    """The CUDA devices that there seem to be, and the one that this process chose."""

    count: int = 0
    local_rank: int = 0
    chosen: int | None = None
    # What `init_process_group(device_id=…)` named: it binds the group, and chooses nothing.
    bound: int | None = None
    used: bool = False
    # Something was put on a device: torch itself asks for streams and such on any machine.
    placed: bool = False
    # The devices that were named where something was put.
    named: set[int] = field(default_factory=set)

    @property
    def current(self) -> int:
        return self.chosen or 0


MACHINE = Machine()


def logical_device() -> int | None:
    """Return the index of the CUDA device that this rank chose, if it used any.

    A rank that chose none uses the one that it named wherever it put something, or else 0.
    """
    if MACHINE.chosen is None and MACHINE.bound is not None:
        return MACHINE.bound
    if MACHINE.chosen is None and len(MACHINE.named) == 1:
        return next(iter(MACHINE.named))
    return MACHINE.current if MACHINE.placed else None


def choose(index: int) -> None:
    """Make a device the current one, as `torch.cuda.set_device`."""
    MACHINE.used = MACHINE.placed = True
    MACHINE.chosen = index


def invalid_ordinal() -> NoReturn:
    # `torch.AcceleratorError` is new in PyTorch 2.8; before, a RuntimeError was raised.
    error: type[RuntimeError] = getattr(torch, "AcceleratorError", RuntimeError)
    raise error("CUDA error: invalid device ordinal")


def ordinal(index: int | None) -> int:
    """Return the index itself, or the current one for none; raise as CUDA does out of range."""
    MACHINE.used = True
    if index is None or index == -1:
        return MACHINE.current
    if not 0 <= index < MACHINE.count:
        invalid_ordinal()
    return index


def cuda_index(device: Any) -> int:
    """Return the index of the device handed to a function of `torch.cuda`.

    Raises:
        ValueError: It names no CUDA device.
    """
    if device is None or isinstance(device, int):
        return ordinal(device)
    if isinstance(device, torch.cuda.device):
        return ordinal(device.idx)
    device = DEVICE(device)
    if device.type not in ("cuda", "cpu"):
        raise ValueError(f"Expected a cuda device, but got: {device}")
    return ordinal(device.index if device.type == "cuda" else None)


def cpu_device(device: Any) -> Any:
    """Return the device that is really used: CPU for any of CUDA's, every other one as it is."""
    kind = type(device)
    if kind is DEVICE:
        if device.type != "cuda":
            return device
        index = ordinal(device.index)
        MACHINE.placed = True
        if device.index is not None:
            MACHINE.named.add(index)
        return CPU
    if kind is int:
        MACHINE.named.add(ordinal(device))
        MACHINE.placed = True
        return CPU
    if kind is str and device.startswith("cuda"):
        return cpu_device(DEVICE(device))
    return device


def cpu_type(device_type: str) -> str:
    """Return the device type that is really used ("cuda" is "cpu")."""
    if device_type == "cuda":
        MACHINE.used = True
        return "cpu"
    return device_type


def on_cuda(device: Any) -> bool:
    """True if a device named by a script is one of CUDA's."""
    return device is not CPU and cpu_device(device) is CPU


def cpu_backend(backend: str) -> str:
    """Return the communication backend that is really used."""
    names = {BACKENDS.get(part, part) for _, _, part in map(_split, backend.lower().split(","))}
    return names.pop() if len(names) == 1 else backend.lower().replace("nccl", "gloo")


def _split(part: str) -> tuple[str, str, str]:
    head, colon, tail = part.partition(":")
    return (head, colon, tail) if colon else ("", "", head)
