"""Comparisons: decided where both sides are known, else a condition in a normal form.

`!=`, `is not`, `not in`, `<`, `>=` and `<=` become negations of `==`, `is`, `in` and `>`, so that
opposite tests of one thing are opposite decisions.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Items

from fsdplint.engine.interpreter.elements import hashable, is_popped, is_submodule
from fsdplint.engine.interpreter.modules import is_module
from fsdplint.engine.interpreter.values import (
    Choice,
    ClassValue,
    Condition,
    Const,
    FunctionValue,
    Mapping,
    Method,
    Object,
    Origin,
    Parameters,
    Sequence,
    StateDict,
    Symbol,
    Taint,
    Value,
    class_names,
    followed,
    key_of,
    same,
    taint_of,
)
from fsdplint.knowledge import calls as known
from fsdplint.knowledge.checkpoints import ALWAYS_THERE
from fsdplint.knowledge.fsdp import WRAPPERS
from fsdplint.knowledge.kinds import asked_kind, is_plain_layer, kind_of
from fsdplint.knowledge.modules import hugging_face_blocks, is_hugging_face_layer
from fsdplint.knowledge.names import FSDP1, FSDP2_MODULE, MODULE, NN, OPTIMIZER
from fsdplint.knowledge.tensors import DTYPES

_OPERATORS: dict[str, Callable[[object, object], object]] = {
    "Equal": operator.eq,
    "Is": operator.eq,
    "GreaterThan": operator.gt,  # type: ignore[dict-item]  # raises TypeError, caught
    "In": lambda item, whole: item in whole,  # type: ignore[operator]  # the same
}
_NEGATED = {"NotEqual": "Equal", "IsNot": "Is", "NotIn": "In", "LessThanEqual": "GreaterThan"}


def compare(op: str, left: Value, right: Value) -> Value:
    """Return ``left op right``, with ``op`` the name of LibCST's operator class."""
    if op in _NEGATED:
        return negated(compare(_NEGATED[op], left, right))
    if op == "LessThan":
        return compare("GreaterThan", right, left)
    if op == "GreaterThanEqual":
        return negated(compare("LessThan", left, right))
    taint = taint_of(left, right)
    known = _decided(op, left, right)
    if known is not None:
        return Const(known, taint)
    if op in ("Equal", "Is") and isinstance(left, Choice):
        left = _only_option(op, left, right)
    if op == "In" and isinstance(right, Sequence) and right.items and not right.rest:
        return any_of([compare("Equal", left, item) for item in right.items])
    return _normal(op, left, right, taint)


def _only_option(op: str, value: Choice, other: Value) -> Value:
    """Return the one option that may equal ``other``: a choice equals it only where that does."""
    options = [option for option in value.options if _decided(op, option, other) is not False]
    unknown = len(options) == 1 and _decided(op, options[0], other) is None
    return options[0] if unknown else value


def _normal(op: str, left: Value, right: Value, taint: Taint) -> Value:
    if op == "GreaterThan" and isinstance(left, Const) and isinstance(left.value, int):
        # c > x  is  not x > c - 1, for the whole numbers that counts and ranks are
        return negated(_normal(op, right, Const(left.value - 1), taint))
    if op in ("Equal", "Is") and isinstance(left, Const):
        left, right = right, left
    name = {"Equal": "==", "Is": "==", "GreaterThan": ">"}.get(op, op)
    return Condition(name, (left, right), (name, key_of(left), key_of(right)), taint)


def any_of(tests: Items[Value]) -> Value:
    """Return whether one of ``tests`` is true."""
    return _joined("or", tests)


def all_of(tests: Items[Value]) -> Value:
    """Return whether each of ``tests`` is true."""
    return _joined("and", tests)


def _joined(op: str, tests: Items[Value]) -> Value:
    absorbing, taint = op == "or", taint_of(*tests)
    unknown = [test for test in tests if not isinstance(test, Const)]
    if any(isinstance(test, Const) and bool(test.value) is absorbing for test in tests):
        return Const(absorbing, taint)
    if not unknown:
        return Const(not absorbing, taint)
    if len(unknown) == 1:
        return unknown[0]
    return Condition(op, tuple(unknown), (op, *map(key_of, unknown)), taint, len(unknown))


def negated(value: Value) -> Value:
    if isinstance(value, Const):
        return Const(not value.value, value.taint)
    if isinstance(value, Condition) and value.op == "not":
        return value.operands[0]
    return Condition("not", (value,), ("not", key_of(value)), value.taint)


def _decided(op: str, left: Value, right: Value) -> bool | None:
    """Return the outcome of a comparison if the values settle it, else None.

    An allocated object is not None and not another allocated object; an unknown object may be
    either, since anything may alias it. A choice is decided if all of its options agree.
    """
    if isinstance(left, Const) and isinstance(right, Const) and op in _OPERATORS:
        try:
            return bool(_OPERATORS[op](left.value, right.value))
        except TypeError:
            return None
    if op in ("Equal", "Is") and _dtype(left) and _dtype(right):
        return _dtype(left) == _dtype(right)
    if op in ("Equal", "Is") and _is_exact(left) and _is_exact(right):
        return same(left, right)
    for value, other in ((left, right), (right, left)):
        if isinstance(value, Choice):
            outcomes = {_decided(op, option, other) for option in value.options}
            return outcomes.pop() if len(outcomes) == 1 else None
        if isinstance(other, Const) and op in ("Equal", "Is") and _is_something(value):
            return False
    if op in ("Equal", "Is") and left is right and not isinstance(left, Const):
        return True
    if op == "Equal" and isinstance(left, Mapping) and isinstance(right, Mapping):
        differ = left.items.keys() != right.items.keys() and not (left.rest or right.rest)
        return False if differ else None
    if op == "Is" and _is_made(left) and _is_made(right):
        return False
    if op == "In" and isinstance(left, Const) and isinstance(right, Mapping):
        return hashable(left.value) in right.items or None  # it may have others
    if op == "In" and isinstance(right, Object) and is_popped(right, left):
        return False
    return None


def exact_class(value: Value) -> ClassValue | Symbol | None:
    """Return what ``type(value)`` is: a class of the program or a layer of torch.nn.

    None if it may be another one: sharding and `torch.compile` give a module a class of their own.
    """
    if not isinstance(value, Object) or value.origin is not Origin.ALLOCATED:
        return None
    if value.sharded or value.hooked_methods or "__class__" in value.attrs:
        return None
    if value.cls is None or not _is_exact(value.cls):
        return None
    if isinstance(value.cls, ClassValue) and value.cls.lookup("__new__") is not None:
        return None
    return value.cls


def _is_exact(value: Value) -> bool:
    """True for a class that is no other one under another name."""
    return isinstance(value, ClassValue) or (
        isinstance(value, Symbol) and is_plain_layer(value.name)
    )


def class_name(cls: Value) -> str | None:
    """Return the ``__name__`` of a class, if it is known."""
    if isinstance(cls, ClassValue):
        return cls.node.name
    return cls.name.rpartition(".")[2] if isinstance(cls, Symbol) and _is_exact(cls) else None


def _dtype(value: Value) -> str | None:
    """Return the canonical name of a dtype, None for any other value."""
    return DTYPES.get(value.name) if isinstance(value, Symbol) else None


def _is_made(value: Value) -> bool:
    return isinstance(value, Object) and value.origin is Origin.ALLOCATED


def _is_something(value: Value) -> bool:
    """True if a value is surely an object with an identity: no constant, not None."""
    if isinstance(value, Object):
        return value.origin is Origin.ALLOCATED or bool(value.sharded)
    if isinstance(value, Symbol) and value.name in ALWAYS_THERE:
        return True
    return _dtype(value) is not None or isinstance(
        value, (ClassValue, FunctionValue, Method, Sequence, Mapping, Parameters, StateDict)
    )


def is_instance(value: Value, classes: Items[Value]) -> Value:
    """Return whether ``value`` is an instance of one of ``classes``: a constant or a condition."""
    verdicts = [_instance_of(value, followed(cls)) for cls in classes]
    if True in verdicts or None not in verdicts:
        return Const(True in verdicts)
    key = ("isinstance", key_of(value), *map(key_of, classes))
    return Condition("isinstance", (value, *classes), key, value.taint)


def _instance_of(value: Value, cls: Value) -> bool | None:
    """Return whether ``value`` is an instance of ``cls``; None if it is not known."""
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
    if isinstance(cls, Symbol) and isinstance(value.cls, Symbol) and value.cls.name == cls.name:
        return True
    if isinstance(cls, ClassValue) and isinstance(value.cls, Symbol):
        return False if known.is_harmless(value.cls.name) else None
    if isinstance(cls, Symbol) and is_hugging_face_layer(cls.name) and _is_whole_model(value):
        return False
    if isinstance(cls, Symbol) and _is_of_torch_nn(cls) and _is_plain(value):
        return cls.name == MODULE
    asked = asked_kind(cls.name) if isinstance(cls, Symbol) else None
    if asked is not None and (kinds := _kinds(value)):
        return asked in kinds
    if isinstance(value.cls, ClassValue):
        return _inherits(value.cls, cls)
    return None


def _is_of_torch_nn(cls: Symbol) -> bool:
    return cls.name.rpartition(".")[0] == NN


def _is_plain(value: Object) -> bool:
    """True if an object that the program constructed is of one class of torch.nn."""
    made = value.origin is Origin.ALLOCATED and isinstance(value.cls, Symbol)
    return made and _is_exact(value.cls)  # type: ignore[arg-type]  # a Symbol


def _is_whole_model(value: Object) -> bool:
    return any(hugging_face_blocks(name) is not None for name in class_names(value.cls))


def _kinds(value: Object) -> set[str]:
    """Return the kinds of PyTorch's objects that an object surely is of."""
    if is_module(value) or is_submodule(value):
        return {MODULE}
    if value.captures:
        return {OPTIMIZER}
    return {kind for name in class_names(value.cls) if (kind := kind_of(name)) is not None}


def _from_python(names: Iterable[str]) -> bool:
    return all(name.split(".")[0] in sys.stdlib_module_names for name in names)


def _inherits(own: ClassValue, cls: Value) -> bool | None:
    """Return whether a project class has ``cls`` among its bases; None if that is not known."""
    lineage = list(own.lineage())
    if isinstance(cls, ClassValue):
        return True if cls in lineage else None if own.opaque() else False
    if not isinstance(cls, Symbol):
        return None
    if asked_kind(cls.name) is not None and not own.opaque() and _from_python(class_names(own)):
        return False
    if not cls.name.startswith(f"{NN}."):
        return None
    library = {base.name for base in lineage if isinstance(base, Symbol)}
    bases = {name for name in library if not is_plain_layer(name)}
    plain = not own.opaque() and bases <= {MODULE}  # others of torch have bases not known here
    return True if cls.name in library else False if plain else None
