"""What is run: programs, their safe fixes, and the configurations to run both sides in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Arguments = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Program:
    """Text by path relative to the program's folder.

    Attributes:
        name: its source and its name there, which `--only` selects.
        entry: the file that is run.
        arguments: the command lines it is meant for.
    """

    name: str
    files: Mapping[str, str]
    entry: str
    arguments: tuple[Arguments, ...] = ((),)


@dataclass(frozen=True, slots=True)
class Fixed:
    """A program as the safe fixes of one rule leave it."""

    rule: str
    files: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Configuration:
    """One way to start a program.

    Attributes:
        arguments: its command line; `{rank}` is the local rank.
        environment: variables that are set, those with None unset.
        launched: whether the variables of torchrun are set.
        cuda: whether there are CUDA devices (simulated on the CPU).
    """

    arguments: Arguments = ()
    environment: tuple[tuple[str, str | None], ...] = ()
    launched: bool = True
    nodes: int = 1
    local_ranks: int = 2
    cuda: bool = True

    @property
    def ranks(self) -> int:
        """The number of processes."""
        return self.nodes * self.local_ranks if self.launched else 1

    @property
    def devices(self) -> int:
        """The number of CUDA devices that each process sees."""
        return (self.local_ranks if self.launched else 1) if self.cuda else 0

    def __str__(self) -> str:
        shape = f"{self.nodes}x{self.local_ranks}" if self.launched else "python"
        variables = [f"{k}={v}" if v is not None else f"-{k}" for k, v in self.environment]
        parts = [shape, "" if self.cuda else "cpu", *variables, *self.arguments]
        return " ".join(filter(None, parts))
