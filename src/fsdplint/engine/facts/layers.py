"""The layers and parameters that a model's construction left behind, and which units hold them."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from fsdplint.engine.interpreter.elements import container_items
from fsdplint.engine.interpreter.values import ClassValue, Object, Origin, Symbol
from fsdplint.knowledge.modules import CONTAINERS, PARAMETER, PARAMETER_LAYERS

_MAX_DEPTH = 6


def library_class(module: Object) -> str:
    """The canonical name of a library's class, "" for any other."""
    return module.cls.name if isinstance(module.cls, Symbol) else ""


def surely_in(module: Object) -> Object:
    """The nearest module around a view or an unknown element that it surely is a part of."""
    while module.origin is Origin.PART and module.parent is not None and _is_open(module.step):
        module = module.parent
    return module


def _is_open(step: str) -> bool:
    return step in ("[]", ".?") or step.endswith("()")


def with_parameters(module: Object, units: Collection[Object], depth: int = 0) -> Iterator[Object]:
    """The parameters in ``module``, and layers that have some, that are in none of ``units``."""
    if module in units or depth > _MAX_DEPTH:
        return
    library = library_class(module)
    if library == PARAMETER or library in PARAMETER_LAYERS:
        yield module
    elif isinstance(module.cls, ClassValue) or library in CONTAINERS:
        for part in (*module.attrs.values(), *container_items(module)):
            if isinstance(part, Object) and part.parent is module:
                yield from with_parameters(part, units, depth + 1)
