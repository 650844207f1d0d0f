"""Notes every module that becomes an FSDP unit, and what its parameters were before."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

from fsdplint.verify.events import Place, Sharded
from fsdplint.verify.rank import access, labels
from fsdplint.verify.rank.patch import replace_everywhere, wrap_method
from fsdplint.verify.rank.probes import bypass
from fsdplint.verify.rank.seen import Seen


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
        place = seen.recorder.place()
        before(seen, modules, "fsdp2", place, kwargs.get("ignored_params") or ())
        result = original(module, *args, **kwargs)
        after(seen, modules)
        return result

    return fully_shard


def _constructor(seen: Seen, original: Any) -> Any:
    guard = seen.recorder.probe("sharding")
    before = guard(_remember)

    @functools.wraps(original)
    def construct(self: Any, module: nn.Module, *args: Any, **kwargs: Any) -> None:
        place = seen.recorder.place()
        before(seen, [module], "fsdp1", place, ())
        original(self, module, *args, **kwargs)
        for parameter in access.ignored(self):
            labels.ignore(parameter)
        seen.add_unit(self, "fsdp1", place)

    return construct


def _remember(
    seen: Seen,
    modules: list[nn.Module],
    api: str,
    place: Place | None,
    ignored: Iterable[nn.Parameter],
) -> None:
    """Writes the event and remembers each parameter by name, before they are replaced."""
    for parameter in ignored:
        labels.ignore(parameter)
    taken = {
        id(held.parameter)
        for unit in _related(seen, modules)
        for held in seen.parameters(unit)
        if held.unit is not None
    }
    sizes = {}
    for module in modules:
        for name, parameter in module.named_parameters():
            labels.take(parameter, len(seen.units), name)
            sizes[id(parameter)] = parameter.numel()
        for inner in module.modules():
            _assigned(seen, inner)
    owned = sum(size for key, size in sizes.items() if key not in taken)
    seen.recorder.write(
        Sharded(
            len(seen.units),
            type(modules[0]).__name__,
            api,
            place,
            _around(seen, modules[0]),
            owned,
            sum(sizes.values()),
        )
    )


def _note(seen: Seen, modules: list[nn.Module]) -> None:
    place = seen.recorder.place()
    for module in modules:
        seen.add_unit(module, "fsdp2", place)
        _inherit(seen, module)
        bypass.watch(seen, type(module))


def _related(seen: Seen, modules: list[nn.Module]) -> list[nn.Module]:
    """Returns the units under some modules, and the outermost ones around them."""
    under = [unit for module in modules for unit in seen.inner_units(module)]
    over = [u for u in seen.units if any(inner in modules for inner in u.modules())]
    return over or under


def _around(seen: Seen, module: nn.Module) -> int | None:
    """Returns the number of a unit that holds `module` and is a unit already, the latest one."""
    numbers = [
        unit.number
        for outer, unit in seen.units.items()
        if outer is not module and any(inner is module for inner in outer.modules())
    ]
    return max(numbers, default=None)


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
