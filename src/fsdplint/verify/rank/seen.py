"""What a rank's probes have come across so far: the one registry they share."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, MutableSet
from dataclasses import dataclass
from itertools import count
from weakref import WeakKeyDictionary, WeakSet, ref

from torch import nn
from torch.optim import Optimizer

from fsdplint.verify.events import Place
from fsdplint.verify.rank import access
from fsdplint.verify.rank.access import Held
from fsdplint.verify.rank.recorder import Recorder


@dataclass(frozen=True)
class UnitSeen:
    """An FSDP unit: the module `fully_shard` or FSDP1 took, in the order they were asked to."""

    number: int
    api: str


@dataclass
class OptimizerSeen:
    """An optimizer that was built; `steps` counts its finished steps."""

    number: int
    place: Place | None
    steps: int = 0


class Seen:
    """The units, models and optimizers of this rank, all held weakly.

    Attributes:
        gathered: units that the script has unsharded by hand.
        assigned: per module and parameter name the mark of the parameter last put there.
        scaled: a gradient scaler is at work.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.units: MutableMapping[nn.Module, UnitSeen] = WeakKeyDictionary()
        self.gathered: MutableSet[nn.Module] = WeakSet()
        self.optimizers: MutableMapping[Optimizer, OptimizerSeen] = WeakKeyDictionary()
        self.assigned: MutableMapping[nn.Module, dict[str, int]] = WeakKeyDictionary()
        self.scaled = False
        self._numbers = count()
        self._called: list[ref[nn.Module]] = []
        self._built: list[OptimizerSeen] = []

    @property
    def steps(self) -> int:
        """Steps finished by every optimizer that has begun to step."""
        begun = [seen.steps for seen in self._built if seen.steps]
        return min(begun, default=0)

    def number_unit(self) -> int:
        """Returns the number of a unit that is to be: FSDP1's makes its inner ones on its way."""
        return next(self._numbers)

    def add_optimizer(self, optimizer: Optimizer, place: Place | None) -> OptimizerSeen:
        """Notes that an optimizer was built; its steps count beyond its own life."""
        if optimizer not in self.optimizers:
            self.optimizers[optimizer] = OptimizerSeen(len(self._built), place)
            self._built.append(self.optimizers[optimizer])
        return self.optimizers[optimizer]

    def called(self, module: nn.Module) -> None:
        """Notes a module that was called from outside every other module."""
        if all(known() is not module for known in self._called):
            self._called.append(ref(module))

    def models(self) -> list[nn.Module]:
        """Returns the outermost modules with units in them: called as a whole, or units whose
        surroundings are not known."""
        known = [m for m in (r() for r in self._called) if m is not None]
        candidates = [m for m in known if any(inner in self.units for inner in m.modules())]
        candidates += [m for m in self.units if m not in candidates]
        return [
            m
            for m in candidates
            if not any(m is not other and _holds(other, m) for other in candidates)
        ]

    def parameters(self, model: nn.Module) -> list[Held]:
        """Returns the model's live parameters, the sharded ones in their sharded form."""
        return list(access.parameters(model))

    def inner_units(self, module: nn.Module) -> Iterator[nn.Module]:
        """Yields the units under a module, itself included."""
        return (inner for inner in module.modules() if inner in self.units)


def _holds(outer: nn.Module, inner: nn.Module) -> bool:
    return any(module is inner for module in outer.modules())
