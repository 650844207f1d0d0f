"""Tensors of modules: shards, numbers that are reduced from them, and reads of such numbers.

A number that is reduced from a shard is *partial*: it covers this rank's part only, until the ranks
combine theirs. Reading a partial number as if it were global is what rules report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Items
from dataclasses import replace

from fsdplint.engine import ir
from fsdplint.engine.interpreter.events import Divided, Operation, Read
from fsdplint.engine.interpreter.modules import is_parameter
from fsdplint.engine.interpreter.state import Frame, PathState
from fsdplint.engine.interpreter.values import (
    Arguments,
    Choice,
    Condition,
    Const,
    Mapping,
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

# The time of a tensor that was gathered: before all sharding.
_WHOLE = -1


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
    return value.parent if is_parameter(value) else None


def attribute(state: PathState, value: Value, name: str) -> Value | None:
    """Return ``p.grad`` or ``p.data``; a view of a reduced number is that number."""
    if name not in ("grad", "data") or not isinstance(value, (Tensor, Parameters, StateDict)):
        return None
    if state.in_forward and name == "data" and isinstance(value, Parameters):
        return value
    return tensor_of(state, value)


def is_of_unit(value: Value) -> bool:
    """True if a value is a tensor, or a parameter that is reached by attributes of a unit."""
    if isinstance(value, Object):
        module = _module_of(value)
        return module is not None and any(m.sharded for m in (module, *module.ancestors()))
    return isinstance(value, Tensor)


def operated(
    state: PathState, name: str, operands: Iterable[Value], node: ir.Node, frame: Frame
) -> None:
    """Note an operation if an operand is a tensor of a module, or holds one."""
    if state.in_forward or state.importing:
        return
    given = tuple(operands)
    held = tuple(tuple(held_tensors(state, value)) for value in given)
    if any(held):
        site = state.site(node, frame)
        state.trace.operations.append(Operation(state.tick(), site, name, given, held))


def made_by(state: PathState, made: Value | None, node: ir.Node, frame: Frame) -> Value | None:
    """Return the result of an operation with its place, if it is the first on a parameter."""
    if isinstance(made, Tensor) and made.source is None:
        return replace(made, source=state.site(node, frame))
    return made


def held_tensors(state: PathState, value: Value) -> Iterator[Tensor]:
    """Yield the tensors of modules that a value is, or that are elements of it."""
    inner = followed(value)
    parts: tuple[Value, ...] = (value,)
    if isinstance(inner, Sequence):
        parts = (*inner.items, *inner.rest)
    elif isinstance(inner, Mapping):
        parts = (*inner.items.values(), *inner.rest)
    for part in parts:
        tensor = None if isinstance(part, (Const, Symbol)) else _plainly(state, part)
        if tensor is not None:
            yield tensor


def method(
    state: PathState, tensor: Tensor, name: str, arguments: Arguments, node: ir.Call, frame: Frame
) -> Value | None:
    """Return the result of a tensor's method, None if nothing is known of it."""
    if name == "item" and tensor.partial:
        return look(state, tensor, node, frame)
    if name == "full_tensor" and not tensor.partial:
        return replace(tensor, time=_WHOLE, vague=True)
    reduction = known.REDUCTIONS.get(name)
    if reduction is not None and tensor.time == _WHOLE:
        return None
    if reduction is not None:
        return _reduced(state, tensor, reduction, arguments, node, frame)
    keeps = known.VIEWS if tensor.partial else known.ELEMENTWISE
    return tensor if name in keeps else vague(tensor, name)


def vague(tensor: Tensor, name: str) -> Tensor | None:
    """Return the result of an operation that is not known; None if it is no tensor."""
    if name in known.NUMBERS or name in known.DESCRIBES or name.startswith("__"):
        return None
    return replace(tensor, partial="", reduced=None, vague=True)


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
        return _of_others(state, name, arguments.args)
    if name in known.READING_FUNCTIONS and tensor.partial:
        return look(state, tensor, node, frame)
    if name in known.REDUCING_FUNCTIONS:
        rest = Arguments(others, arguments.keywords)
        reduction = known.REDUCING_FUNCTIONS[name]
        return _reduced(state, tensor, reduction, rest, node, frame)
    if name in known.ELEMENTWISE_FUNCTIONS and not tensor.partial:
        return tensor
    return _of_others(state, name, [tensor])


def _of_others(state: PathState, name: str, operands: Items[Value]) -> Tensor | None:
    """Return the result of a function of PyTorch that is not known, but computes on tensors."""
    computes = name.startswith("torch.") and known.computes_alone(name)
    if not computes or name in known.GIVES_NO_TENSOR:
        return None
    held = (tensor for value in operands for tensor in held_tensors(state, value))
    made = next(held, None)
    return None if made is None else vague(made, "")


def _plainly(state: PathState, value: Value) -> Tensor | None:
    """Return the tensor that a value is; of a choice it is vague, unless each option is one."""
    if isinstance(value, Choice) and not isinstance(followed(value), Tensor):
        return in_choice(value)
    return tensor_of(state, value)


def in_choice(value: Value) -> Tensor | None:
    """Return a tensor that a choice may be, of which no more is known."""
    options = value.options if isinstance(value, Choice) else ()
    found = next((option for option in options if isinstance(option, Tensor)), None)
    return None if found is None else vague(found, "")


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
    if listed or tensor.vague or arguments.keywords.keys() - known.OPTIONS:
        return vague(tensor, "")
    kind = reduction.kind
    if kind == "norm":
        order = arguments.get(0, "p") or arguments.keywords.get("ord")
        kind = "max" if order is not None and is_infinite(order) else kind
    if tensor.partial:
        same = tensor.partial == kind and kind in known.IDEMPOTENT
        return tensor if same else vague(tensor, "")
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
    if tensor is None:
        return None
    return tensor if tensor.partial in (*known.LINEAR, "any") else vague(tensor, "")


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
    found = [tensor for tensor in (one, other) if tensor is not None]
    partial = [tensor for tensor in found if tensor.partial]
    if not found:
        return None
    if not partial:
        same = op != "MatrixMultiply" and not any(tensor.vague for tensor in found)
        return found[0] if same else vague(found[0], "")
    kind = partial[0].partial
    if kind not in known.LINEAR or any(tensor.partial != kind for tensor in found):
        return vague(found[0], "")
    if len(partial) == 2:
        return partial[0] if op in ("Add", "Subtract") else vague(found[0], "")
    scalar = followed(right if one is partial[0] else left)
    scaled = op == "Multiply" or (op == "Divide" and one is partial[0])
    return partial[0] if scaled and isinstance(scalar, Const) else vague(found[0], "")


def compared(state: PathState, op: str, left: Value, right: Value) -> Value | None:
    """Return the result of a comparison of tensors: a shard, or unknown for partial numbers."""
    if op not in ("Equal", "NotEqual", "GreaterThan", "LessThan") and not op.endswith("ThanEqual"):
        return None
    one, other = _plainly(state, left), _plainly(state, right)
    found = [tensor for tensor in (one, other) if tensor is not None]
    if not found or any(tensor.vague for tensor in found):
        return None
    return state.unknown() if any(tensor.partial for tensor in found) else found[0]


def accumulated(state: PathState, op: str, added: Value) -> Value | None:
    """Return the value of ``total += added`` in a loop: sums of partial sums stay partial."""
    tensor = _plainly(state, added)
    if tensor is None:
        return None
    linear = tensor.partial in known.LINEAR and op == "Add"
    return tensor if linear else vague(tensor, "") if tensor.vague else None


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
