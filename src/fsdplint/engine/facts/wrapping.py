"""Which modules an FSDP1 wrap policy makes units of their own."""

from __future__ import annotations

from fsdplint.engine.facts.layers import library_class
from fsdplint.engine.interpreter.events import Shard
from fsdplint.engine.interpreter.values import (
    ClassValue,
    Const,
    Object,
    Partial,
    Sequence,
    Symbol,
    Value,
    resolved,
)
from fsdplint.knowledge.modules import MODULE_WRAP_POLICY, TRANSFORMER_POLICY, WRAP


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
    policy = resolved(shard.keywords.get("auto_wrap_policy", Const(None)))
    listed: Value | None = None
    if isinstance(policy, Object) and library_class(policy) == f"{WRAP}.{MODULE_WRAP_POLICY}":
        listed = policy.args[0] if policy.args else policy.keywords.get("module_classes")
    function = policy.function if isinstance(policy, Partial) else None
    if isinstance(policy, Partial) and isinstance(function, Symbol):
        named = function.name == TRANSFORMER_POLICY
        listed = policy.keywords.get("transformer_layer_cls") if named else None
    listed = None if listed is None else resolved(listed)
    if not isinstance(listed, Sequence) or listed.rest:
        return None
    classes = tuple(map(resolved, listed.items))
    return classes if all(isinstance(c, (ClassValue, Symbol)) for c in classes) else None
