"""What a model is made of, as an optimizer first steps: units, parameters, ties, optimizers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from weakref import ref

from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from fsdplint.verify.events import (
    Initial,
    InitialValue,
    OptimizerBuilt,
    Original,
    Parameter,
    Snapshot,
    Stale,
    Tie,
    Unit,
)
from fsdplint.verify.rank import access
from fsdplint.verify.rank.access import Held, held_by
from fsdplint.verify.rank.probes.replacements import ASSIGNMENT, SHARDING
from fsdplint.verify.rank.probes.storage import unwritten
from fsdplint.verify.rank.recorder import Unobservable
from fsdplint.verify.rank.registry import Replacement, Seen, is_ignored, is_marked, mark


class Snapshots:
    """Take one snapshot of each model and one record of each optimizer."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._models: list[ref[nn.Module]] = []
        self._noted: set[int] = set()
        self._ties: dict[int, tuple[Tie, ...]] = {}

    def models(self) -> list[tuple[int, nn.Module]]:
        """Return the models that have a snapshot and are alive, with their numbers."""
        return [(n, model) for n, r in enumerate(self._models) if (model := r()) is not None]

    def take_last(self) -> None:
        """Take snapshots at the end where no step has: of an ended script's models only parts may
        be left."""
        if not self._models and not any(map(access.is_at_work, self._seen.models())):
            self.take()

    def take(self) -> None:
        """Take snapshots of the models, and note the optimizers, that have none yet."""
        known = [model for _, model in self.models()]
        for model in self._seen.models():
            if not any(model is other for other in known):
                self._models.append(ref(model))
                self._take(model, len(self._models) - 1)
                self._seen.write(self._initial(model, len(self._models) - 1))
        for optimizer, built in list(self._seen.optimizers.items()):
            if built.number not in self._noted:
                self._noted.add(built.number)
                self._seen.write(self._optimizer(optimizer))

    def renew(self) -> None:
        """Take another snapshot of each model whose ties have changed since its last one."""
        for number, model in self.models():
            if tuple(_ties(self._seen, model)) != self._ties[number]:
                self._take(model, number)

    def _take(self, model: nn.Module, number: int) -> None:
        snapshot = self._snapshot(model, number)
        self._ties[number] = snapshot.ties
        self._seen.write(snapshot)

    def _snapshot(self, model: nn.Module, number: int) -> Snapshot:
        """Describe a model as it is now."""
        held = list(access.parameters(model))
        if any(isinstance(access.local(h.parameter), FakeTensor) for h in held):
            raise Unobservable("they are fake tensors without values")
        modules: dict[int, dict[str, nn.Module]] = {}
        for name, module in model.named_modules():
            if module in self._seen.units:
                modules.setdefault(self._seen.units[module].number, {})[name] = module
        return Snapshot(
            number,
            access.class_name(model),
            tuple(self._unit(number, found, held) for number, found in modules.items()),
            tuple(self._parameter(h) for h in held if h.unit is None),
            tuple(_repeated(model, held)),
            tuple(_ties(self._seen, model)),
            tuple(sorted({str(h.parameter.device) for h in held})),
            self._seen.steps,
        )

    def _unit(self, number: int, modules: Mapping[str, nn.Module], held: list[Held]) -> Unit:
        """Describe a unit of one module, or of several with their names in the model."""
        names = [access.clean(name).removesuffix("._fsdp_wrapped_module") for name in modules]
        found = list(modules.values())
        return Unit(
            names[0],
            ", ".join(dict.fromkeys(map(access.class_name, found))),
            self._seen.units[found[0]].api,
            number,
            tuple(self._parameter(h) for h in held if any(h.unit is module for module in found)),
            max(map(access.divided_over, found)),
            tuple(names[1:]),
        )

    def _initial(self, model: nn.Module, number: int) -> Initial:
        """Describe what a model's parameters and buffers hold now."""
        values = [
            InitialValue(h.name, False, part.numel(), unwritten(part), access.digest(part))
            for h in access.parameters(model)
            for part in [access.local(h.parameter)]
        ]
        for prefix, module in model.named_modules():
            for key, buffer in module._buffers.items():
                if buffer is not None:
                    name = access.clean(f"{prefix}.{key}" if prefix else key)
                    left = unwritten(buffer, self._seen.buffer_mark(module, key))
                    values.append(InitialValue(name, True, access.local(buffer).numel(), left, ""))
        return Initial(number, tuple(values), tuple(self._seen.emptied))

    def _parameter(self, held: Held) -> Parameter:
        """Describe a live parameter."""
        parameter = held.parameter
        part = access.local(parameter)
        mesh = parameter.device_mesh if isinstance(parameter, DTensor) else None
        return Parameter(
            held.name,
            held.shape,
            tuple(part.shape),
            str(part.dtype).removeprefix("torch."),
            part.element_size(),
            tuple(map(str, parameter.placements)) if isinstance(parameter, DTensor) else (),
            tuple(mesh.shape) if mesh else (),
            tuple(mesh.mesh_dim_names or ()) if mesh else (),
            tuple(mesh.get_coordinate() or ()) if mesh else (),
            parameter.requires_grad,
            is_ignored(parameter),
            tuple(sorted(self._holders(parameter))),
            held.flat,
            tuple(mesh.mesh.flatten().tolist()) if mesh else access.fsdp1_replicas(held.unit),
            tuple(Original(name, prod(shape)) for name, shape in access.originals(held))
            if held.flat
            else (),
        )

    def _holders(self, parameter: nn.Parameter) -> Iterator[int]:
        for optimizer, built in self._seen.optimizers.items():
            if any(p is parameter for p in held_by(optimizer)):
                yield built.number

    def _name(self, replacement: Replacement) -> str:
        """Return the name in its model of a parameter that was replaced; empty if in none."""
        owner = replacement.owner()
        path = self._seen.path(owner) if owner is not None else None
        if path is None:
            return ""
        return access.clean(".".join(filter(None, (path[1], replacement.key))))

    def _optimizer(self, optimizer: Optimizer) -> OptimizerBuilt:
        """Describe an optimizer by what its parameters are now."""
        built = self._seen.optimizers[optimizer]
        live = {id(held.parameter): held for held in self._seen.parameters()}
        mine = held_by(optimizer)
        gone = [p for p in mine if id(p) not in live]
        stale = [found for p in gone if (found := self._stale(p, live))]
        return OptimizerBuilt(
            built.number,
            type(optimizer).__name__,
            built.place,
            len(mine) - len(gone),
            tuple(stale),
        )

    def _stale(self, parameter: nn.Parameter, live: Mapping[int, Held]) -> Stale | None:
        """Describe what replaced a parameter that an optimizer holds.

        Sharding did, or resharding. Where something else did, nothing is missing if what is there
        now is not trained, or another optimizer holds it.
        """
        replacement = self._seen.replacement(parameter)
        if replacement is not None and (name := self._name(replacement)):
            now = next((held for held in live.values() if held.name == name), None)
            if replacement.by == SHARDING or (now is not None and self._missed(now.parameter)):
                return Stale(name, replacement.by, replacement.place)
        forms = (access.sharded_form(unit, parameter) for unit in self._seen.units)
        form = next((live[id(form)] for form in forms if id(form) in live), None)
        if form is not None:
            return Stale(form.name, "resharding", None)
        return self._overwritten(parameter, live)

    def _overwritten(self, parameter: nn.Parameter, live: Mapping[int, Held]) -> Stale | None:
        """Describe what was put into a module's own dictionary, which no probe follows."""
        for held in live.values() if is_marked(parameter) else ():
            was = self._seen.assigned.get(held.owner, {}).get(held.key)
            if was == mark(parameter) != mark(held.parameter) and self._missed(held.parameter):
                return Stale(held.name, ASSIGNMENT, None)
        return None

    def _missed(self, parameter: nn.Parameter) -> bool:
        return parameter.requires_grad and not any(True for _ in self._holders(parameter))


def _repeated(model: nn.Module, held: list[Held]) -> list[tuple[str, ...]]:
    """Return, per container, the names of its like children: two or more of one class, with
    parameters, which FSDP1 may have flattened into another one's."""
    owners = {
        name[:dot]
        for one in held
        for name, _ in access.originals(one)
        for dot, letter in enumerate(name)
        if letter == "."
    }
    found = []
    for name, module in model.named_modules():
        if not isinstance(module, nn.ModuleList | nn.ModuleDict | nn.Sequential):
            continue
        by_class: dict[str, list[str]] = {}
        for key, child in module.named_children():
            path = access.clean(f"{name}.{key}" if name else key)
            if path in owners and any(True for _ in child.children()):
                by_class.setdefault(access.class_name(child), []).append(path)
        found += [tuple(children) for children in by_class.values() if len(children) > 1]
    return found


def _ties(seen: Seen, model: nn.Module) -> list[Tie]:
    flattened = dict(access.flattened(model))
    names: dict[int, list[tuple[str, nn.Module, str]]] = {}
    for prefix, module in model.named_modules():
        for key, number in seen.assigned.get(module, {}).items():
            name = access.clean(f"{prefix}.{key}" if prefix else key)
            names.setdefault(number, []).append((name, module, key))
    return [
        Tie(tuple(name for name, _, _ in tied), alive)
        for tied in names.values()
        if len(tied) > 1 and (alive := _alive(tied, flattened)) is not None
    ]


def _alive(
    tied: list[tuple[str, nn.Module, str]], flattened: Mapping[tuple[int, str], tuple[int, int]]
) -> bool | None:
    """True if tied names are one parameter now, also as a part of one of FSDP1's; None if one of
    them is gone."""
    now: list[object] = []
    for _, module, key in tied:
        parameter = module._parameters.get(key)
        own = None if parameter is None else id(parameter)
        now.append(flattened.get((id(module), key), own))
    if any(each is None for each in now):
        return None
    return len(set(now)) == 1
