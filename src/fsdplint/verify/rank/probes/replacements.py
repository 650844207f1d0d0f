"""Record what replaces parameters: sharding, a load, a conversion, the script.

What is put into a module's own dictionary is not seen here; `snapshot` finds that it is another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from torch import nn
from torch.nn.modules.module import register_module_module_registration_hook

from fsdplint.verify.rank.patch import wrap
from fsdplint.verify.rank.registry import Seen

SHARDING, ASSIGNMENT = "sharding", "assignment"
_CALLS = {
    "load_state_dict": "load_state_dict(assign=True)",
    "to_empty": "to_empty",
    **{name: name for name in ("to", "type", "cuda", "cpu")},
    **{name: name for name in ("float", "double", "half", "bfloat16")},
}
"""Methods of modules that may replace parameters, and what reports call them."""
Slots = list[tuple[nn.Module, str, nn.Parameter]]
"""Parameters with the modules and names that they are registered under."""


def install(seen: Seen) -> None:
    """Wrap the methods of modules that replace parameters, and follow assignments."""
    guard = seen.recorder.probe("replacements")
    look, compare, replaced = guard(slots), guard(partial(note, seen)), guard(seen.replaced)

    def call(by: str, original: Callable[..., Any], module: Any, *args: Any, **kwargs: Any) -> Any:
        before = look([module])
        result = original(module, *args, **kwargs)
        compare(before or [], by)
        return result

    def set_module(module: nn.Module, name: str, new: nn.Module | None) -> None:
        old = module._modules.get(name)
        if old is not None and old is not new:
            for key, parameter in old.named_parameters():
                replaced(parameter, module, f"{name}.{key}", ASSIGNMENT)

    def set_parameter(
        original: Callable[..., None], module: nn.Module, name: str, new: nn.Parameter | None
    ) -> None:
        old = module.__dict__.get("_parameters", {}).get(name)
        original(module, name, new)
        if old is not None and old is not new:
            replaced(old, module, name, ASSIGNMENT)

    for name, by in _CALLS.items():
        wrap(nn.Module, name, partial(call, by))
    register_module_module_registration_hook(guard(set_module))
    wrap(nn.Module, "register_parameter", set_parameter)


def slots(modules: Iterable[nn.Module]) -> Slots:
    """Return the parameters of modules, and where they are registered."""
    return [
        (owner, key, parameter)
        for module in modules
        for owner in module.modules()
        for key, parameter in owner._parameters.items()
        if parameter is not None
    ]


def note(seen: Seen, before: Slots, by: str) -> None:
    """Record which parameters have been replaced."""
    for owner, key, parameter in before:
        if owner._parameters.get(key) is not parameter:
            seen.replaced(parameter, owner, key, by)
