"""What the probes of a rank have come across so far: the one registry they share.

Some of it is stored in a parameter's own attributes. A weak reference would do as well, but
`torch.utils.swap_tensors`, which `to_empty` of a sharded module uses, refuses tensors that have one
(torch 2.13). The attributes are plain numbers and strings, so that a whole pickled model can still
be loaded with ``weights_only``.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, MutableSet
from dataclasses import dataclass
from itertools import count
from typing import cast
from weakref import WeakKeyDictionary, WeakSet, ref

from torch import nn
from torch.optim import Optimizer

from fsdplint.verify.events import Place
from fsdplint.verify.rank import access
from fsdplint.verify.rank.access import Held
from fsdplint.verify.rank.recorder import Recorder

_MARK, _REPLACED, _IGNORED = "_fsdplint_mark", "_fsdplint_replaced", "_fsdplint_ignored"
_marks = count(1)


@dataclass(frozen=True)
class UnitSeen:
    """An FSDP unit: a module that was sharded, numbered in the order of the calls."""

    number: int
    api: str


@dataclass
class OptimizerSeen:
    """An optimizer that was built; `steps` counts its finished steps."""

    number: int
    place: Place | None
    steps: int = 0


@dataclass(frozen=True)
class Replacement:
    """The replacement of a parameter.

    Attributes:
        owner: the module that it was registered under, as `key`.
        by: the function that did it, ``sharding`` or ``assignment``.
        place: the line of the user's code.
    """

    owner: ref[nn.Module]
    key: str
    by: str
    place: Place | None


class Seen:
    """The units, models and optimizers of this rank, all held weakly.

    Attributes:
        gathered: units that the script has unsharded by hand.
        assigned: per module and parameter name, the mark of the parameter last assigned there.
        scaled: a gradient scaler is in use.
        emptied: lines that made storage without values.
        stepped: digests of the parts of parameters that an optimizer holds, as the last step left
            them, by their address.
    """

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.write, self.place = recorder.write, recorder.place
        self.units: MutableMapping[nn.Module, UnitSeen] = WeakKeyDictionary()
        self.gathered: MutableSet[nn.Module] = WeakSet()
        self.optimizers: MutableMapping[Optimizer, OptimizerSeen] = WeakKeyDictionary()
        self.assigned: MutableMapping[nn.Module, dict[str, int]] = WeakKeyDictionary()
        self.scaled = False
        self.emptied: list[Place] = []
        self.stepped: dict[int, str] = {}
        self._buffers: MutableMapping[nn.Module, dict[str, int]] = WeakKeyDictionary()
        self._replacements: list[Replacement] = []
        self._numbers = count()
        self._called: list[ref[nn.Module]] = []
        self._built: list[OptimizerSeen] = []

    @property
    def steps(self) -> int:
        """The steps that every optimizer which has begun to step has finished."""
        begun = [seen.steps for seen in self._built if seen.steps]
        return min(begun, default=0)

    def number_unit(self) -> int:
        """Return the number of a unit that is about to be made; FSDP1 makes its inner ones next."""
        return next(self._numbers)

    def add_optimizer(self, optimizer: Optimizer, place: Place | None) -> OptimizerSeen:
        """Record that an optimizer was built; its steps count beyond its own life."""
        if optimizer not in self.optimizers:
            self.optimizers[optimizer] = OptimizerSeen(len(self._built), place)
            self._built.append(self.optimizers[optimizer])
        return self.optimizers[optimizer]

    def replaced(self, parameter: nn.Parameter, owner: nn.Module, key: str, by: str) -> None:
        """Record that something else is now where a parameter was; of several, the last counts."""
        parameter.__dict__[_REPLACED] = len(self._replacements)
        self._replacements.append(Replacement(ref(owner), key, by, self.place()))

    def replacement(self, parameter: nn.Parameter) -> Replacement | None:
        """Return what replaced a parameter, or None."""
        number = parameter.__dict__.get(_REPLACED)
        return None if number is None else self._replacements[number]

    def mark_buffer(self, module: nn.Module, key: str) -> int:
        """Return a number from 1 for the buffer that a module has under `key`."""
        known = self._buffers.setdefault(module, {})
        return known.setdefault(key, 1 + sum(map(len, self._buffers.values())))

    def buffer_mark(self, module: nn.Module, key: str) -> int:
        """Return the number that a buffer was given, or 0."""
        return self._buffers.get(module, {}).get(key, 0)

    def called(self, module: nn.Module) -> None:
        """Record a module that was called from outside every other module."""
        if all(known() is not module for known in self._called):
            self._called.append(ref(module))

    def models(self) -> list[nn.Module]:
        """Return the outermost modules with units in them.

        They are those that were called as a whole, and units whose surroundings are not known.
        """
        known = [m for m in (r() for r in self._called) if m is not None]
        candidates = [m for m in known if self.has_units(m)]
        candidates += [m for m in self.units if m not in candidates]
        return [
            m
            for m in candidates
            if not any(m is not other and _holds(other, m) for other in candidates)
        ]

    def parameters(self) -> Iterator[Held]:
        """Yield the live parameters of all models, the sharded ones in their sharded form."""
        for model in self.models():
            yield from access.parameters(model)

    def path(self, module: nn.Module) -> tuple[int, str] | None:
        """Return the number of a module's model and its name there, or None."""
        for number, model in enumerate(self.models()):
            for name, inner in model.named_modules():
                if inner is module:
                    return number, name
        return None

    def inner_units(self, module: nn.Module) -> Iterator[nn.Module]:
        """Yield the units under a module, itself included."""
        return (inner for inner in module.modules() if inner in self.units)

    def has_units(self, module: nn.Module) -> bool:
        """True if a module or one of its parts is a unit."""
        return any(True for _ in self.inner_units(module))


def _holds(outer: nn.Module, inner: nn.Module) -> bool:
    return any(module is inner for module in outer.modules())


def mark(parameter: nn.Parameter) -> int:
    """Return a number that is this parameter object's alone, or the one it has inherited."""
    if _MARK not in parameter.__dict__:
        parameter.__dict__[_MARK] = next(_marks)
    return cast(int, parameter.__dict__[_MARK])


def is_marked(parameter: nn.Parameter) -> bool:
    """True if a parameter has a mark."""
    return _MARK in parameter.__dict__


def inherit(parameter: nn.Parameter, number: int) -> None:
    """Give a parameter that has no mark yet the mark of the one it represents."""
    parameter.__dict__.setdefault(_MARK, number)


def ignore(parameter: nn.Parameter) -> None:
    """Record that a unit ignores this parameter."""
    parameter.__dict__[_IGNORED] = True


def is_ignored(parameter: nn.Parameter) -> bool:
    """True if a unit ignores this parameter."""
    return _IGNORED in parameter.__dict__
