"""Notes every module that becomes an FSDP unit, and what its parameters were before."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

from fsdplint.verify.events import Sharded
from fsdplint.verify.rank import access, labels
from fsdplint.verify.rank.patch import replace_everywhere, wrap_method
from fsdplint.verify.rank.probes import bypass
from fsdplint.verify.rank.seen import Seen, UnitSeen


def install(seen: Seen) -> None:
    """Wraps ``fully_shard`` under all its names, FSDP1's constructor, and parameter assignment."""
    replace_everywhere(fully_shard, _watched(seen, fully_shard))
    wrap_method(FullyShardedDataParallel, "__init__", lambda init: _constructor(seen, init))
    wrap_method(nn.Module, "register_parameter", lambda put: _assignment(seen, put))


def _watched(seen: Seen, original: Any) -> Any:
    guard = seen.recorder.probe("sharding")
    before, after = guard(_remember), guard(_note)

    @functools.wraps(original)
    def fully_shard(module: Any, *args: Any, **kwargs: Any) -> Any:
        modules = [module] if isinstance(module, nn.Module) else list(module)
        number = seen.number_unit()
        before(seen, number, modules, "fsdp2", kwargs.get("ignored_params") or ())
        result = original(module, *args, **kwargs)
        after(seen, number, modules)
        return result

    return fully_shard


def _constructor(seen: Seen, original: Any) -> Any:
    guard = seen.recorder.probe("sharding")
    before = guard(_remember)

    @functools.wraps(original)
    def construct(self: Any, module: nn.Module, *args: Any, **kwargs: Any) -> None:
        number = seen.number_unit()
        before(seen, number, [module], "fsdp1", ())
        original(self, module, *args, **kwargs)
        for parameter in access.ignored(self):
            labels.ignore(parameter)
        seen.units[self] = UnitSeen(number, "fsdp1")

    return construct


def _remember(
    seen: Seen,
    number: int,
    modules: list[nn.Module],
    api: str,
    ignored: Iterable[nn.Parameter],
) -> None:
    """Writes the event and remembers each parameter by name, before they are replaced."""
    for parameter in ignored:
        labels.ignore(parameter)
    taken = _taken(seen, modules)
    sizes = {}
    for module in modules:
        for name, parameter in module.named_parameters():
            labels.take(parameter, number, name)
            sizes[id(parameter)] = parameter.numel()
        for inner in module.modules():
            _assigned(seen, inner)
    seen.recorder.write(
        Sharded(
            number,
            type(modules[0]).__name__,
            api,
            seen.recorder.place(),
            max((seen.units[unit].number for unit in _around(seen, modules[:1])), default=None),
            sum(size for key, size in sizes.items() if key in taken),
            sum(sizes.values()),
        )
    )


def _taken(seen: Seen, modules: list[nn.Module]) -> set[int]:
    """The identities of the parameters that units around the modules hold already."""
    under = {inner for module in modules for inner in module.modules()}
    return {
        id(held.parameter)
        for unit in _around(seen, modules)
        for held in seen.parameters(unit)
        if held.unit is not None and held.unit not in under
    }


def _note(seen: Seen, number: int, modules: list[nn.Module]) -> None:
    for module in modules:
        seen.units[module] = UnitSeen(number, "fsdp2")
        _inherit(seen, module)
        bypass.watch(seen, type(module))


def _around(seen: Seen, modules: list[nn.Module]) -> list[nn.Module]:
    """Returns the units that hold one of the modules, and are none of them."""
    return [
        unit
        for unit in seen.units
        if unit not in modules and any(inner in modules for inner in unit.modules())
    ]


def _assigned(seen: Seen, module: nn.Module) -> None:
    marks = seen.assigned.setdefault(module, {})
    for name, parameter in module._parameters.items():
        if parameter is not None:
            marks[name] = labels.mark(parameter)


def _assignment(seen: Seen, original: Any) -> Any:
    """Notes which parameter object a module was given, so that ties can be told later."""
    mark = seen.recorder.probe("ties")(_mark)

    @functools.wraps(original)
    def register_parameter(self: nn.Module, name: str, param: nn.Parameter | None) -> None:
        original(self, name, param)
        if param is not None:
            mark(seen, self, name, param)

    return register_parameter


def _inherit(seen: Seen, module: nn.Module) -> None:
    """Gives the parameters that sharding made the marks of those they stand for."""
    for inner in module.modules():
        marks = seen.assigned.get(inner, {})
        for name, parameter in inner._parameters.items():
            if parameter is not None and name in marks:
                labels.inherit(parameter, marks[name])


def _mark(seen: Seen, module: nn.Module, name: str, parameter: nn.Parameter) -> None:
    if not labels.marked(parameter):
        stands_for = next(
            (s for unit in seen.units if (s := access.sharded_form(unit, parameter)) is not None),
            None,
        )
        if stands_for is not None:
            labels.inherit(parameter, labels.mark(stands_for))
    seen.assigned.setdefault(module, {})[name] = labels.mark(parameter)
