"""Note every module that becomes an FSDP unit, and what its parameters were before."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch.distributed.fsdp as fsdp
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel

from fsdplint.verify.events import Sharded
from fsdplint.verify.rank import access
from fsdplint.verify.rank.patch import wrap
from fsdplint.verify.rank.probes.forwards import watch_forward
from fsdplint.verify.rank.probes.replacements import SHARDING, note, slots
from fsdplint.verify.rank.registry import Seen, UnitSeen, ignore, inherit, is_marked, mark


def install(seen: Seen) -> None:
    """Wrap ``fully_shard``, FSDP1's constructor, and the assignment of parameters."""
    guard = seen.recorder.probe("sharding")
    look, replaced = guard(slots), guard(note)
    before, after, note_mark = (
        guard(_remember),
        guard(_units_made),
        seen.recorder.probe("ties")(_mark),
    )

    def fully_shard(original: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
        modules = [module] if isinstance(module, nn.Module) else list(module)
        number = seen.number_unit()
        before(seen, number, modules, "fsdp2", kwargs.get("ignored_params") or ())
        old = look(modules)
        result = original(module, *args, **kwargs)
        after(seen, number, modules)
        replaced(seen, old or [], SHARDING)
        return result

    def construct(original: Any, unit: Any, module: Any, *args: Any, **kwargs: Any) -> None:
        number = seen.number_unit()
        before(seen, number, [module], "fsdp1", ())
        old = look([module])
        original(unit, module, *args, **kwargs)
        replaced(seen, old or [], SHARDING)
        for parameter in access.ignored(unit):
            ignore(parameter)
        seen.units[unit] = UnitSeen(number, "fsdp1")

    def register(original: Any, module: nn.Module, name: str, param: nn.Parameter | None) -> None:
        original(module, name, param)
        if param is not None:
            note_mark(seen, module, name, param)

    wrap(fsdp, "fully_shard", fully_shard)
    wrap(FullyShardedDataParallel, "__init__", construct)
    wrap(nn.Module, "register_parameter", register)


def _remember(
    seen: Seen,
    number: int,
    modules: list[nn.Module],
    api: str,
    ignored: Iterable[nn.Parameter],
) -> None:
    """Write the event and mark each parameter, before they are replaced."""
    for parameter in ignored:
        ignore(parameter)
    taken = _taken(seen, modules)
    sizes: dict[int, int] = {}
    for module in modules:
        sizes |= {id(parameter): parameter.numel() for parameter in module.parameters()}
        for inner in module.modules():
            marks = seen.assigned.setdefault(inner, {})
            marks |= {name: mark(p) for name, p in inner._parameters.items() if p is not None}
    seen.write(
        Sharded(
            number,
            type(modules[0]).__name__,
            api,
            seen.place(),
            max((seen.units[unit].number for unit in _around(seen, modules[:1])), default=None),
            sum(size for key, size in sizes.items() if key in taken),
            sum(sizes.values()),
        )
    )


def _taken(seen: Seen, modules: list[nn.Module]) -> set[int]:
    """Return the identities of the parameters that units around the modules hold already."""
    under = {inner for module in modules for inner in module.modules()}
    return {
        id(held.parameter)
        for unit in _around(seen, modules)
        for held in access.parameters(unit)
        if held.unit is not None and held.unit not in under
    }


def _around(seen: Seen, modules: list[nn.Module]) -> list[nn.Module]:
    """Return the units that hold one of the modules, and are none of them."""
    return [
        unit
        for unit in seen.units
        if unit not in modules and any(inner in modules for inner in unit.modules())
    ]


def _units_made(seen: Seen, number: int, modules: list[nn.Module]) -> None:
    """Record new units; give the parameters that sharding made the marks of their originals."""
    for module in modules:
        seen.units[module] = UnitSeen(number, "fsdp2")
        for inner in module.modules():
            marks = seen.assigned.get(inner, {})
            for name, parameter in inner._parameters.items():
                if parameter is not None and name in marks:
                    inherit(parameter, marks[name])
        watch_forward(seen, type(module))


def _mark(seen: Seen, module: nn.Module, name: str, parameter: nn.Parameter) -> None:
    """Record which parameter object a module was given, so that ties are known later."""
    if not is_marked(parameter):
        forms = (access.sharded_form(unit, parameter) for unit in seen.units)
        if (sharded := next((form for form in forms if form is not None), None)) is not None:
            inherit(parameter, mark(sharded))
    seen.assigned.setdefault(module, {})[name] = mark(parameter)
