"""Units of one model that compute in different precisions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.layers import library_class, surely_in, with_parameters
from fsdplint.engine.interpreter.events import Shard
from fsdplint.engine.interpreter.values import (
    Choice,
    ClassValue,
    Const,
    FunctionValue,
    Object,
    Symbol,
    Value,
    class_names,
    followed,
)
from fsdplint.engine.program import Program
from fsdplint.finding import Edit, Fix, Safety, Severity
from fsdplint.fixes.arguments import add_argument
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.fixes.names import clash, names_in, written_between
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.policies import (
    FULL_PRECISION,
    MIXED_PRECISION_POLICY,
    MIXED_PRECISION_POLICY_FIELDS,
    MULTIPLIES,
    PROMOTES,
    STARTS_FLOATS,
)
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD402",
    summary="root and blocks use different precisions, which meet in one layer",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
)


# Words of code that takes care of dtypes itself: parameters that are low before they are sharded,
# and activations that are cast.
_CASTS = re.compile(
    r"\.\s*(bfloat16|half|float|double|type_as)\s*\(|\.\s*to\s*\([^)\n]*(dtype|float|half)"
    r"|[(,]\s*dtype\s*=\s*(?!torch\.(int|uint|long|short|bool))"
    r"|default_dtype"
    r"|autocast"
)
# Operators whose result has the higher dtype of their operands.
_OPERATORS = frozenset({"Add", "Subtract", "Multiply", "Divide"})


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
    """The split between a root and its parts, if all parts compute alike and differ from it."""
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
    # Full weights can multiply what is low and then combined with something full.
    rescued = bool(dtype) and not own.dtype
    layer = _meeting(model, inside[0], units, lowered=bool(dtype), rescued=rescued)
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


def _meeting(
    model: Object, part: Shard, units: set[Object], *, lowered: bool, rescued: bool
) -> Object | None:
    """A layer of the root's own that the forward uses and where the dtypes surely meet.

    A matrix product behind the blocks gets what they compute. A layer with low weights gives what
    the blocks, with full ones, cannot multiply.

    Args:
        lowered: the blocks compute in a low dtype.
        rescued: the layer works if type promotion lifts what the blocks compute.
    """
    used = _uses(model)
    blocks = _attribute(model, part.module)
    for layer in with_parameters(model, units):
        name, library = _attribute(model, layer), library_class(layer)
        if name not in used or blocks not in used:
            continue
        behind = used[name] > used[blocks]
        if rescued and behind and _may_promote(model, units, used, blocks, name):
            continue
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
    steps = [n for n, v in model.attrs.items() if current is not None and followed(v) is current]
    return steps[0] if steps else ""


def _may_promote(
    model: Object, units: set[Object], used: dict[str, int], blocks: str, layer: str
) -> bool:
    """True if the forward may combine what the blocks compute with full floats before a layer."""
    first, last = used[blocks], used[layer]
    between = [name for name, place in used.items() if first <= place <= last]
    for name in between:
        part = followed(model.attrs.get(name))
        known = not isinstance(part, Object) or bool(library_class(part)) or part in units
        if not known and name not in (blocks, layer):
            return True
    for method in ("forward", *between):
        found = model.cls.lookup(method) if isinstance(model.cls, ClassValue) else None
        if isinstance(found, FunctionValue):
            own, function = _own_uses(model, method), found.function
            start, end = own.get(blocks, function.start), own.get(layer, function.end)
            if method == "forward":
                start, end = first, last
            nodes = (each for each in ir.walk(function) if each.end > start and each.start < end)
            if any(map(_promotes, nodes)):
                return True
    return False


def _promotes(node: ir.Node) -> bool:
    """True if a node may combine two tensors; a number leaves the dtype of a tensor as it is."""
    if isinstance(node, ir.BinOp):
        numbers = isinstance(node.left, ir.Constant) or isinstance(node.right, ir.Constant)
        return node.op in _OPERATORS and not numbers
    if isinstance(node, ir.AugAssign):
        return not isinstance(node.value, ir.Constant)
    return isinstance(node, ir.Call) and ir.last_name(node.func) in PROMOTES


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


def reports(program: Program) -> Iterator[Report]:
    for fact in precision_splits(program):
        root, part = fact.root.site, fact.part.site
        layer = f"`{fact.layer.path().lstrip('.')}`"
        yield Report(
            program.span(root),
            f"the forward crashes on mixed dtypes: the root's {layer} computes in "
            f"{_named(fact.root_dtype, 'its')}, but the modules that "
            f"`{program.text(part.path, fact.part.call.func)}` shards {program.where(part, root)} "
            f"compute in {_named(fact.part_dtype, 'their')}",
            "the forward fails",
            (
                program.evidence(part, f"{_named(fact.part_dtype, 'their')} here"),
                *program.conditions(root, part),
            ),
            partial(_fix, program, fact),
        )


def _named(dtype: str, whose: str) -> str:
    return dtype.rpartition(".")[2] or f"the dtype of {whose} parameters"


def _fix(program: Program, fact: PrecisionSplit) -> Fix | Declined:
    root, part = fact.root, fact.part
    if len({root.site.path, part.site.path, *(each.site.path for each in fact.others)}) > 1:
        return Declined(
            "the calls are in different files; pass the same `mp_policy` to both by hand"
        )
    code = Code.of(program.tree(root.site.path))
    if fact.part_dtype and not fact.root_dtype:
        others = [each.call for each in fact.others if each.call is not part.call]
        return same_policy(code, part.call, [root.call, *others])
    return same_policy(code, root.call, [part.call])


_KEYWORD = "mp_policy"


@builder
def same_policy(code: Code, source: ir.Call, targets: Sequence[ir.Call]) -> Fix:
    """Gives each of ``targets`` the policy that ``source`` is given, in the same function."""
    given = [a.value for a in source.args if a.keyword == _KEYWORD]
    if len(given) != 1:
        raise NoFixError(
            f"`{code.short(source)}` gets its policy from elsewhere; pass "
            "the same `mp_policy` to both by hand"
        )
    edits = [_added(code, source, given[0], target) for target in dict.fromkeys(targets)]
    return Fix("pass the same `mp_policy` to both", Safety.UNSAFE, tuple(edits))


def _added(code: Code, source: ir.Call, policy: ir.Expr, target: ir.Call) -> Edit:
    if code.function(source) is not code.function(target):
        raise NoFixError(
            "the two calls are in different functions; pass the same `mp_policy` to both by hand"
        )
    if not target.args or any(a.keyword == _KEYWORD or a.star for a in target.args):
        raise NoFixError("each call has its own policy; choose one for both")
    start, end = sorted((source.start, target.start))
    reads = names_in(policy).reads
    if clash(reads, written_between(code, source, start, end)) or _is_late(code, reads, target):
        raise NoFixError(f"`{code.short(policy)}` may have another value at the other call")
    return add_argument(code, target, f"{_KEYWORD}={code.slice(policy)}")


def _is_late(code: Code, reads: set[str], target: ir.Call) -> bool:
    """Whether the function assigns one of the names only behind ``target``, or loops over it."""
    after = written_between(code, target, target.end, len(code.text))
    loops = [n for n in code.ancestors(target) if isinstance(n, (ir.For, ir.Comprehension))]
    bound = {path for loop in loops for path in names_in(loop).writes}
    return clash(reads, after | bound) is not None
