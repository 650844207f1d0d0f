"""How two runs differ in what they compute and save; plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Differences:
    """How tensors or numbers of one kind differ.

    Attributes:
        count: those that were compared.
        largest: the largest relative difference.
        off: those that differ by more than the tolerance, by how much, the worst first.
        lost: names of those that only the first run has; `new`: only the second.
    """

    count: int
    largest: float
    off: tuple[tuple[str, float], ...]
    lost: tuple[str, ...]
    new: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What both runs saved under one path, or after one step.

    Attributes:
        before: paths that the first run wrote; `after`: the second.
        slices: entries of which the second run saved only a part, while the first saved all.
        unclear: how many entries of the first run are parts themselves, so that they say nothing.
    """

    before: tuple[str, ...]
    after: tuple[str, ...]
    step: int
    tensors: Differences
    numbers: Differences
    slices: tuple[str, ...]
    unclear: int


@dataclass(frozen=True, slots=True)
class Compared:
    """Two runs.

    Attributes:
        tolerance: of relative differences.
        short: 16-bit numbers take part, in the first run and in the second.
        unread: parameters of which not all parts were recorded.
        initial: parameters in the first forward.
        adopted: how many parameters the second run took from the first, since both draw them.
        restored: moments at which the second run took over the states of the generators.
        parameters: after the last step.
        unclear: elements of parameters that are left out, since rounding decides how an optimizer
            changes them: their gradients are nothing but rounding.
        moved: how many parameters each run changed; `still`: those that only the first changed.
    """

    tolerance: float
    short: tuple[bool, bool]
    unread: tuple[str, ...]
    initial: Differences
    adopted: int
    restored: tuple[str, ...]
    parameters: Differences
    unclear: int
    moved: tuple[int, int]
    still: tuple[str, ...]
    checkpoints: tuple[Checkpoint, ...]
