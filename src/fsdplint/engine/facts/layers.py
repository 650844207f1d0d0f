"""Layers and parameters that a construction left behind, and which units hold them."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from fsdplint.engine.interpreter.elements import container_items
from fsdplint.engine.interpreter.events import Shard
from fsdplint.engine.interpreter.values import (
    ClassValue,
    Object,
    Origin,
    Partial,
    Sequence,
    Symbol,
    Value,
    must_be,
)
from fsdplint.knowledge.modules import (
    CONTAINERS,
    MODULE_WRAP_POLICY,
    PARAMETER,
    PARAMETER_LAYERS,
    TRANSFORMER_POLICY,
    WRAP,
)

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


def is_a(module: Object, cls: Value) -> bool:
    if isinstance(cls, ClassValue):
        return isinstance(module.cls, ClassValue) and cls in module.cls.lineage()
    return isinstance(cls, Symbol) and library_class(module) == cls.name


def wrapped_classes(shard: Shard) -> tuple[Value, ...] | None:
    """The classes whose modules become units of their own; None if that is not known."""
    plain = [argument for argument in shard.call.args if argument.keyword is None]
    written = len(plain) < 5 and not any(argument.star for argument in shard.call.args)
    if shard.wraps_children is False or (written and "auto_wrap_policy" not in shard.keywords):
        return ()
    policy = must_be(shard.keywords.get("auto_wrap_policy"))
    listed: Value | None = None
    if isinstance(policy, Object) and library_class(policy) == f"{WRAP}.{MODULE_WRAP_POLICY}":
        listed = policy.args[0] if policy.args else policy.keywords.get("module_classes")
    function = policy.function if isinstance(policy, Partial) else None
    if isinstance(policy, Partial) and isinstance(function, Symbol):
        named = function.name == TRANSFORMER_POLICY
        listed = policy.keywords.get("transformer_layer_cls") if named else None
    listed = must_be(listed)
    if not isinstance(listed, Sequence) or listed.rest:
        return None
    classes = map(must_be, listed.items)
    known = tuple(c for c in classes if isinstance(c, (ClassValue, Symbol)))
    return known if len(known) == len(listed.items) else None
