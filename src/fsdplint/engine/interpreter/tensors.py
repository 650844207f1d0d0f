"""Tensors of modules: shards, numbers that are reduced from them, and reads of such numbers.

A number that is reduced from a shard is *partial*: it covers this rank's part only, until the ranks
combine theirs. Reading a partial number as if it were global is what rules report.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fsdplint.engine import ir
from fsdplint.engine.interpreter.events import Divided, Read
from fsdplint.engine.interpreter.modules import PARAMETER_STEPS
from fsdplint.engine.interpreter.state import Frame, PathState
from fsdplint.engine.interpreter.values import (
    Arguments,
    Choice,
    Condition,
    Const,
    Object,
    Parameters,
    Sequence,
    StateDict,
    Symbol,
    Taint,
    Tensor,
    Value,
    contained,
    followed,
)
from fsdplint.knowledge import tensors as known
from fsdplint.knowledge.collectives import CLIP_GRAD_NORM, GET_TOTAL_NORM


def tensor_of(state: PathState, value: Value) -> Tensor | None:
    """Return ``value`` as a tensor of a module, if it is one and no hook has gathered it."""
    value = followed(value)
    if isinstance(value, Tensor):
        return value
    if state.in_forward:
        return None
    module: Object | None = None
    time = state.tick()
    if isinstance(value, Parameters) and not value.named:
        module, time = value.module, time if value.lazy else value.time
    elif isinstance(value, StateDict) and value.element and not value.escaped:
        module = value.owner
    elif isinstance(value, Object):
        module = _module_of(value)
    if module is None or any(part.unsharded for part in (module, *module.ancestors())):
        return None
    return Tensor(module, time, taint=value.taint)


def _module_of(value: Object) -> Object | None:
    """Return the module of a parameter or gradient that is reached by attributes."""
    while value.step == ".data" and value.parent is not None:
        value = value.parent
    if value.step == ".grad" and value.parent is not None:
        return value.parent.parent
    return value.parent if value.step in PARAMETER_STEPS else None


def attribute(state: PathState, value: Value, name: str) -> Value | None:
    """Return ``p.grad`` or ``p.data``; a view of a reduced number is that number."""
    if name not in ("grad", "data") or not isinstance(value, (Tensor, Parameters, StateDict)):
        return None
    return tensor_of(state, value)


def method(
    state: PathState, tensor: Tensor, name: str, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value | None:
    """Return the result of a tensor's method, None if nothing is known of it."""
    if name == "item" and tensor.partial:
        return look(state, tensor, node, frame)
    reduction = known.REDUCTIONS.get(name)
    if reduction is not None:
        return _reduced(state, tensor, reduction, arguments, node, frame)
    keeps = known.VIEWS if tensor.partial else known.ELEMENTWISE
    return tensor if name in keeps else None


def function(
    state: PathState, name: str, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value | None:
    """Return the result of a function on tensors, None if nothing is known of it."""
    if not arguments.args or arguments.open:
        return None
    first, *others = arguments.args
    if name in _OVER_SEQUENCES:
        return _OVER_SEQUENCES[name](state, arguments, node, frame)
    tensor = _plainly(state, first)
    if tensor is None:
        return None
    if name in known.READING_FUNCTIONS and tensor.partial:
        return look(state, tensor, node, frame)
    if name in known.REDUCING_FUNCTIONS:
        rest = Arguments(others, arguments.keywords)
        reduction = known.REDUCING_FUNCTIONS[name]
        return _reduced(state, tensor, reduction, rest, node, frame)
    return tensor if name in known.ELEMENTWISE_FUNCTIONS and not tensor.partial else None


def _plainly(state: PathState, value: Value) -> Tensor | None:
    """Return the tensor that a value is, if every option of a choice is a tensor."""
    if isinstance(value, Choice) and not isinstance(followed(value), Tensor):
        return None
    return tensor_of(state, value)


def _reduced(
    state: PathState,
    tensor: Tensor,
    reduction: known.Reduction,
    arguments: Arguments,
    node: ir.Call,
    frame: Frame,
) -> Value | None:
    """Return the number that a reduction makes of a shard.

    A second reduction of a partial number keeps it partial if it is idempotent, such as the maximum
    of maxima; a reduction along a dimension, or with unknown options, gives no number.
    """
    listed = len(arguments.args) > reduction.options or arguments.open
    if listed or arguments.keywords.keys() - known.OPTIONS:
        return None
    kind = reduction.kind
    if kind == "norm":
        order = arguments.get(0, "p") or arguments.keywords.get("ord")
        kind = "max" if order is not None and is_infinite(order) else kind
    if tensor.partial:
        return tensor if tensor.partial == kind and kind in known.IDEMPOTENT else None
    return replace(tensor, partial=kind, reduced=state.site(node, frame))


def is_infinite(value: Value) -> bool:
    value = followed(value)
    if isinstance(value, Const):
        return value.value == float("inf") or value.value == "inf"
    return isinstance(value, Symbol) and value.name in known.INFINITIES


# Several at once


def _elements(state: PathState, value: Value) -> Tensor | None:
    """Return the tensor that represents all elements of a sequence."""
    value = followed(value)
    if not isinstance(value, Sequence) or not (value.items or value.rest):
        return None
    found = [_plainly(state, item) for item in (*value.items, *value.rest)]
    kinds = {tensor.partial if tensor is not None else None for tensor in found}
    return found[0] if len(kinds) == 1 else None


def _stacked(state: PathState, arguments: Arguments, *_: object) -> Value | None:
    tensor = _elements(state, arguments.args[0])
    return tensor if tensor is not None and tensor.partial else None


def _summed(state: PathState, arguments: Arguments, *_: object) -> Value | None:
    """Return the result of ``sum``: sums stay partial, a sum of norms has no meaning."""
    tensor = _elements(state, arguments.args[0])
    linear = tensor is not None and tensor.partial in (*known.LINEAR, "any")
    return tensor if linear else None


def _picked(state: PathState, arguments: Arguments, *_: object) -> Value | None:
    """Return the result of ``max`` or ``min``, which is partial if an argument is."""
    if len(arguments.args) == 1:
        return _stacked(state, arguments)
    found = [_plainly(state, value) for value in arguments.args]
    return next((tensor for tensor in found if tensor is not None and tensor.partial), None)


def _asked(state: PathState, arguments: Arguments, node: ir.Call, frame: Frame) -> Value | None:
    """Read the numbers that ``any`` or ``all`` tests."""
    tensor = _elements(state, arguments.args[0])
    if tensor is None or not tensor.partial:
        return None
    given = node.args[0].value if node.args else node
    place = given.element if isinstance(given, ir.Comprehension) else node
    return look(state, tensor, place, frame)


def _norms(state: PathState, arguments: Arguments, node: ir.Call, frame: Frame) -> Value | None:
    """Return the result of ``torch._foreach_norm``."""
    tensor = _elements(state, arguments.args[0])
    if tensor is None or tensor.partial:
        return None
    order = arguments.get(1, "ord")
    kind = "max" if order is not None and is_infinite(order) else "norm"
    norm = replace(tensor, partial=kind, reduced=state.site(node, frame))
    return Sequence([], [norm], repeated=True)


def _clipped(state: PathState, arguments: Arguments, node: ir.Call, frame: Frame) -> Value | None:
    """Return the norm of ``clip_grad_norm_`` or ``get_total_norm``, if it is partial.

    From PyTorch 2.10 on the result is global, except for the maximum norm.
    """
    order = arguments.get(1 if "total" in ir.last_name(node.func) else 2, "norm_type")
    largest = order is not None and is_infinite(order)
    if not largest and not known.clips_by_parts(state.project.torch):
        return None
    found = [tensor_of(state, value) for value in contained(arguments.args[0])]
    tensor = next((tensor for tensor in found if tensor is not None), None)
    if tensor is None:
        return None
    return replace(tensor, partial="max" if largest else "norm", reduced=state.site(node, frame))


_OVER_SEQUENCES: dict[str, Callable[[PathState, Arguments, ir.Call, Frame], Value | None]] = {
    known.STACK: _stacked,
    "builtins.sum": _summed,
    "builtins.max": _picked,
    "builtins.min": _picked,
    "builtins.any": _asked,
    "builtins.all": _asked,
    known.FOREACH_NORM: _norms,
    CLIP_GRAD_NORM: _clipped,
    GET_TOTAL_NORM: _clipped,
}


# Operators


def binary(state: PathState, op: str, left: Value, right: Value) -> Value | None:
    """Return ``left op right`` if it is a shard or a partial number.

    An operator on shards gives a shard; sums that are added or scaled by a constant stay partial.
    """
    one, other = _plainly(state, left), _plainly(state, right)
    partial = [tensor for tensor in (one, other) if tensor is not None and tensor.partial]
    if not partial:
        shard = one or other
        return shard if shard is not None and op != "MatrixMultiply" else None
    kind = partial[0].partial
    if kind not in known.LINEAR or any(tensor.partial != kind for tensor in partial):
        return None
    if len(partial) == 2:
        return partial[0] if op in ("Add", "Subtract") else None
    scalar = followed(right if one is partial[0] else left)
    scaled = op == "Multiply" or (op == "Divide" and one is partial[0])
    return partial[0] if scaled and isinstance(scalar, Const) else None


def compared(state: PathState, op: str, left: Value, right: Value) -> Value | None:
    """Return the result of a comparison of tensors: a shard, or unknown for partial numbers."""
    if op not in ("Equal", "NotEqual", "GreaterThan", "LessThan") and not op.endswith("ThanEqual"):
        return None
    one, other = _plainly(state, left), _plainly(state, right)
    found = [tensor for tensor in (one, other) if tensor is not None]
    if not found:
        return None
    return state.unknown() if any(tensor.partial for tensor in found) else found[0]


def accumulated(state: PathState, op: str, added: Value) -> Value | None:
    """Return the value of ``total += added`` in a loop: sums of partial sums stay partial."""
    tensor = _plainly(state, added)
    linear = tensor is not None and tensor.partial in known.LINEAR
    return tensor if linear and op == "Add" else None


def divided(
    state: PathState, value: Value, by: Value, result: Value, node: ir.Node, frame: Frame
) -> None:
    value = followed(value)
    if isinstance(value, Object):
        state.note(Divided, node, frame, value, by, result)


# Reading


def look(state: PathState, value: Value, node: ir.Node, frame: Frame) -> Value:
    """Return the number that code reads from ``value``, and note the read if it is partial."""
    tensor = value if isinstance(value, Condition) else followed(value)
    if not isinstance(tensor, Tensor) or not tensor.partial:
        return value
    if not state.importing:
        state.trace.reads.append(Read(state.tick(), state.site(node, frame), tensor))
    return state.unknown(tensor.taint | Taint.LOCAL)
