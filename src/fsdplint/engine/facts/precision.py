"""Units of one model that compute in different precisions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from fsdplint.engine import ir
from fsdplint.engine.events import Shard
from fsdplint.engine.layers import library_class, surely_in, with_parameters
from fsdplint.engine.program import Program
from fsdplint.engine.values import (
    Choice,
    ClassValue,
    Const,
    FunctionValue,
    Object,
    Symbol,
    Value,
    class_names,
    resolved,
)
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.policies import (
    FULL_PRECISION,
    MIXED_PRECISION_POLICY,
    MIXED_PRECISION_POLICY_FIELDS,
    MULTIPLIES,
    STARTS_FLOATS,
)

# Words of code that takes care of dtypes itself: parameters that are low before they are sharded,
# and activations that are cast.
_CASTS = re.compile(
    r"\.\s*(bfloat16|half|float|double|type_as)\s*\(|\.\s*to\s*\([^)\n]*(dtype|float|half)"
    r"|default_dtype"
    r"|autocast"
)


@dataclass(frozen=True, slots=True)
class Precision:
    """What a unit computes in.

    Attributes:
        dtype: the canonical name, "" for that of its parameters.
        plain: its outputs have that dtype, and its inputs are cast to it.
    """

    dtype: str
    plain: bool = True


@dataclass(frozen=True, slots=True)
class PrecisionSplit:
    """A root and a part of it, sharded with different precisions, that meet in a layer.

    Attributes:
        layer: the root's own layer that gets, or gives, the other dtype.
        others: the parts of other models whose roots the same call shards.
    """

    root: Shard
    part: Shard
    root_dtype: str
    part_dtype: str
    layer: Object
    others: tuple[Shard, ...] = ()


def precision_splits(program: Program) -> Iterator[PrecisionSplit]:
    for trace in program.traces:
        shards = [s for s in trace.of(Shard) if s.generation is Generation.FSDP2]
        if not any("mp_policy" in shard.keywords for shard in shards):
            continue
        for root in shards:
            inside = [each for each in shards if root.module in each.module.ancestors()]
            found = _split(program, root, inside) if inside else None
            if found is not None:
                yield replace(found, others=tuple(_of_others(shards, root)))


def _of_others(shards: list[Shard], root: Shard) -> Iterator[Shard]:
    """The parts of what the call on a root shards besides it, in a loop through models."""
    others = [s.module for s in shards if s.call is root.call and s.module is not root.module]
    for shard in shards:
        if any(model in shard.module.ancestors() for model in others):
            yield shard


def _split(program: Program, root: Shard, inside: list[Shard]) -> PrecisionSplit | None:
    own, parts = precision(root), [precision(shard) for shard in inside]
    model = root.module
    if own is None or not isinstance(model.cls, ClassValue) or model.cls.opaque():
        return None
    dtypes = {None if part is None else part.dtype for part in parts}
    if len(dtypes) != 1 or not all(part and part.plain for part in parts) or not own.plain:
        return None
    (dtype,) = dtypes
    if dtype is None or dtype == own.dtype:
        return None
    units = {surely_in(shard.module) for shard in inside}
    layer = _meeting(model, inside[0], units, bool(dtype))
    if layer is None or _casts(program, root, model):
        return None
    return PrecisionSplit(root, inside[0], own.dtype, dtype, layer)


def precision(shard: Shard) -> Precision | None:
    """What the call's policy says, None where it is not known."""
    if "mp_policy" not in shard.keywords:
        return None if any(argument.star for argument in shard.call.args) else Precision("")
    policy = shard.keywords["mp_policy"]
    if not isinstance(policy, Object) or class_names(policy.cls) != {MIXED_PRECISION_POLICY}:
        return None
    fields = dict(zip(MIXED_PRECISION_POLICY_FIELDS, policy.args, strict=False))
    fields.update(policy.keywords)
    dtype = _dtype(fields.get("param_dtype", Const(None)))
    outputs = fields.get("output_dtype", Const(None))
    casts = fields.get("cast_forward_inputs", Const(True))
    plain = _is(outputs, None) and _is(casts, True)
    return None if dtype is None else Precision(dtype, plain)


def _dtype(value: Value) -> str | None:
    if isinstance(value, Symbol) and value.name.startswith("torch."):
        return "" if value.name == FULL_PRECISION else value.name
    return "" if _is(value, None) else None


def _is(value: Value, constant: object) -> bool:
    return not isinstance(value, Choice) and isinstance(value, Const) and value.value is constant


def _meeting(model: Object, part: Shard, units: set[Object], lowered: bool) -> Object | None:
    """A layer of the root's own that the forward uses and where the dtypes surely meet.

    A matrix product behind the blocks gets what they compute. A layer with low weights gives what
    the blocks, with full ones, cannot multiply.
    """
    used = _uses(model)
    blocks = _attribute(model, part.module)
    for layer in with_parameters(model, units):
        name, library = _attribute(model, layer), library_class(layer)
        if name not in used or blocks not in used:
            continue
        behind = used[name] > used[blocks]
        if library in MULTIPLIES and (behind or not lowered):
            return layer
        if library in STARTS_FLOATS and not lowered:
            return layer
    return None


def _attribute(model: Object, part: Object) -> str:
    """The attribute of ``model`` that ``part`` is, or is inside of."""
    current: Object | None = part
    while current is not None and current.parent is not model:
        current = current.parent
    steps = [n for n, v in model.attrs.items() if current is not None and resolved(v) is current]
    return steps[0] if steps else ""


def _uses(model: Object) -> dict[str, int]:
    """The attributes of the model that its forward uses, in the order in which it first does.

    What a method uses that it calls is used where the call ends.
    """
    found = _own_uses(model, "forward")
    for name, place in list(found.items()):
        for inner in _own_uses(model, name):
            found.setdefault(inner, place)
    return found


def _own_uses(model: Object, method: str) -> dict[str, int]:
    found = model.cls.lookup(method) if isinstance(model.cls, ClassValue) else None
    if not isinstance(found, FunctionValue):
        return {}
    places: dict[str, int] = {}
    for node in ir.walk(found.function):  # a call comes before the attribute that it calls
        attribute = node.func if isinstance(node, ir.Call) else node
        if isinstance(attribute, ir.Attribute) and isinstance(attribute.value, ir.Name):
            known = places.get(attribute.attr, node.end)
            same = known > node.end and isinstance(node, ir.Attribute)
            if attribute.value.id == "self" and not same:
                places[attribute.attr] = min(known, node.end)
    return places


def _casts(program: Program, root: Shard, model: Object) -> bool:
    """Whether a file that takes part says something of dtypes that may make up for it."""
    paths = {root.site.path, *(path for path, _ in root.site.calls)}
    if model.site is not None:
        paths |= {model.site.path, *(path for path, _ in model.site.calls)}
    if isinstance(model.cls, ClassValue):
        paths.add(model.cls.scope.unit.path)
    return any(_CASTS.search(program.tree(path).text) for path in paths)
