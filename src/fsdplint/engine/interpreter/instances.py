"""What an object is an instance of: asked by ``isinstance`` and by class patterns."""

from __future__ import annotations

from collections.abc import Sequence as Items

from fsdplint.engine.interpreter.modules import is_module
from fsdplint.engine.interpreter.values import (
    ClassValue,
    Condition,
    Const,
    Object,
    Symbol,
    Value,
    followed,
    key_of,
)
from fsdplint.knowledge import calls as known
from fsdplint.knowledge.fsdp import WRAPPERS
from fsdplint.knowledge.names import FSDP1, FSDP2_MODULE, MODULE, NN


def is_instance(value: Value, classes: Items[Value]) -> Value:
    """Whether ``value`` is an instance of one of ``classes``: true, false, or a condition."""
    verdicts = [_instance_of(value, followed(cls)) for cls in classes]
    if True in verdicts or None not in verdicts:
        return Const(True in verdicts)
    key = ("isinstance", key_of(value), *map(key_of, classes))
    return Condition("isinstance", (value, *classes), key, value.taint)


def _instance_of(value: Value, cls: Value) -> bool | None:
    """Whether ``value`` is an instance of ``cls``; None where it is not known."""
    if not isinstance(value, Object):
        return None
    if isinstance(cls, Symbol) and value.sharded:
        generation = value.generation()
        if cls.name == FSDP1:
            return generation is known.Generation.FSDP1
        if cls.name == FSDP2_MODULE:
            return generation is known.Generation.FSDP2
        if cls.name in WRAPPERS:
            return False
    if isinstance(cls, Symbol) and cls.name == MODULE and is_module(value):
        return True
    if isinstance(cls, Symbol) and isinstance(value.cls, Symbol) and value.cls.name == cls.name:
        return True
    if isinstance(cls, ClassValue) and isinstance(value.cls, Symbol):
        return False if known.is_harmless(value.cls.name) else None
    if isinstance(value.cls, ClassValue):
        return _inherits(value.cls, cls)
    return None


def _inherits(own: ClassValue, cls: Value) -> bool | None:
    """Whether a class of the project has ``cls`` among its bases; None where that is not known."""
    lineage = list(own.lineage())
    if isinstance(cls, ClassValue):
        return True if cls in lineage else None if own.opaque() else False
    if not isinstance(cls, Symbol) or not cls.name.startswith(f"{NN}."):
        return None
    library = {base.name for base in lineage if isinstance(base, Symbol)}
    plain = not own.opaque() and library <= {MODULE}  # others of torch have bases not known here
    return True if cls.name in library else False if plain else None
