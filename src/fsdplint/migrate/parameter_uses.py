"""Uses of a sharded model's parameters and gradients that do not work on DTensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest

from fsdplint.engine import ir
from fsdplint.engine.facts.sharding import is_gathered, runs_alone, unit_of
from fsdplint.engine.interpreter.events import Call, Operation, Shard, Store, Trace
from fsdplint.engine.interpreter.site import EVERY_RANK, Guard
from fsdplint.engine.interpreter.values import (
    Const,
    Object,
    Parameters,
    StateDict,
    Symbol,
    Tensor,
    Value,
    class_names,
    followed,
)
from fsdplint.engine.program import Program
from fsdplint.finding import Edit
from fsdplint.fixes.code import Code, Declined, NoFixError
from fsdplint.knowledge import dtensors as known
from fsdplint.knowledge.calls import Generation
from fsdplint.knowledge.names import is_optimizer
from fsdplint.knowledge.tensors import IN_PLACE, TENSOR
from fsdplint.migrate.changed_in_forward import INSIDE
from fsdplint.migrate.modes import may_stay_whole
from fsdplint.migrate.step import Change, Context, Found, attempt, kept
from fsdplint.rules.sharded_reduction_read_locally import combine

_RANK = (
    "only some ranks read these parameters; operations on DTensors need all ranks, and the job may "
    "hang: let every rank compute this by hand"
)
_WHOLE = "it needs a whole tensor; call `full_tensor()` on every rank by hand"
_COLLECTIVE = (
    "collectives of `torch.distributed` take no DTensors; FSDP2 averages gradients and keeps one "
    "copy of each parameter: drop this, or give it what `full_tensor()` returns, by hand"
)
_PART = "a part of a DTensor does not change in place; multiply the whole by a mask by hand"
_REDUCED = (
    "a value that is reduced from a DTensor does not change in place; drop the `_` of the method "
    "by hand"
)
_RANDOM = (
    "each rank would fill its own shards with random numbers; do this before the model is sharded "
    "by hand"
)
_MIXED = (
    "an operation takes DTensors or plain tensors, but not both; make the other one of a parameter "
    "of the sharded model, such as by `zeros_like`, by hand"
)
_UNSUPPORTED = "PyTorch does not support this for DTensors; write it for single parameters by hand"


_LOSS = (
    "a loss that a DTensor was added to has no backward; compute on what `full_tensor()` of the "
    "parameters returns by hand"
)

_STALE = (
    "these parameters are from before the model is sharded, which has others afterwards; take them "
    "below the sharding by hand"
)
_HOOK = (
    "FSDP2 does not run this hook; do the same between backward and the optimizer's step by hand"
)
# Gathering the operands cures these.
_CURED = frozenset({_WHOLE, _LOSS, _MIXED})


@dataclass(slots=True)
class _Place:
    """What is done in a place, on all paths.

    Attributes:
        reasons: why it does not work on DTensors.
        operands: the code of the tensors of modules that it gets.
        plain: on some path, it gets tensors that are whole.
    """

    path: str
    reasons: list[str] = field(default_factory=list)
    operands: dict[ir.Expr, None] = field(default_factory=dict)
    plain: bool = False

    def add(self, reason: str) -> None:
        if reason and reason not in self.reasons:
            self.reasons.append(reason)


def gathered_reads(context: Context) -> Iterator[Found]:
    """Yield a change for each operation on all ranks that works on whole parameters.

    Which blocks become units is not known yet, so that any parameter may be a DTensor.
    """
    for node, place in _places(context.program, strict=False).items():
        if place.reasons and _CURED.issuperset(place.reasons) and not _is_in_place(node):
            code = Code.of(context.program.tree(place.path))
            found = attempt(code, node, partial(_gathered, code, node, place))
            yield from (each for each in found if isinstance(each, Change))


def parameter_uses(context: Context) -> Iterator[Found]:
    """Yield each use that does not work, in the result of a migration."""
    for node, place in _places(context.program, strict=True).items():
        if place.reasons:
            yield kept(Code.of(context.program.tree(place.path)), node, place.reasons[0])
    yield from _changed_inside(context.program)


def _changed_inside(program: Program) -> Iterator[Found]:
    """Yield each change of a sharded model's parameters in its own forward pass."""
    found: dict[ir.Node, str] = {}
    for trace in program.traces:
        events: list[Call | Store] = [*trace.calls(*IN_PLACE), *trace.of(Store)]
        for event in events:
            value = event.owner if isinstance(event, Store) else event.receiver
            value = None if isinstance(event, Store) and event.name != "data" else value
            unit = unit_of(trace, value.module) if isinstance(value, Parameters) else None
            frames = [program.tree(path).function(node) for path, node in event.site.frames()]
            inside = any(each is not None and each.name == "forward" for each in frames)
            if unit is not None and unit.time < event.time and inside:
                found[event.site.node] = event.site.path
    for node, path in found.items():
        yield kept(Code.of(program.tree(path)), node, INSIDE)


def _gathered(code: Code, node: ir.Node, place: _Place) -> Change:
    edits: list[Edit] = []
    values = list(dict.fromkeys(map(_origin, place.operands)))
    if not values:
        raise NoFixError(_WHOLE)
    if isinstance(node, ir.BinOp) and node.op in known.PRODUCTS and len(place.operands) < 2:
        raise NoFixError(_MIXED)  # the other one may be a view of a DTensor
    for value in values:
        moved = code.assigned(value) if isinstance(value, ir.Name) else []
        if any(".cpu(" in code.slice(each) for each in moved):
            raise NoFixError(_WHOLE)
        fix = combine(code, value, may_be_plain=place.plain)
        if isinstance(fix, Declined):
            raise NoFixError(fix.reason)
        edits += fix.edits
    names = " and ".join(f"`{code.slice(value)}`" for value in values)
    return Change(code.span(node), f"gather {names} on every rank first", tuple(edits))


def _origin(value: ir.Expr) -> ir.Expr:
    """Return the expression that is moved, detached or cast, to gather it where it is."""
    match value:
        case ir.Call(func=ir.Attribute(attr=name, value=inner)) if name in known.MOVES:
            return _origin(inner)
        case ir.Attribute(attr="data", value=inner):
            return _origin(inner)
    return value


def _operands(each: Operation) -> list[ir.Expr]:
    """Return the code of each operand, in order; [] where that does not show."""
    match each.site.node:
        case ir.BinOp(left=left, right=right) | ir.Compare(left=left, right=right):
            return [left, right]
        case ir.Subscript(value=value):
            return [value]
        case ir.Call(func=ir.Attribute(value=value), args=args) if "." not in each.name:
            return [value, *(arg.value for arg in args)]
        case ir.Call(args=args):
            return [arg.value for arg in args]
    return [each.site.node] if each.name == "format" else []  # type: ignore[list-item]  # a value


def _is_in_place(node: ir.Node) -> bool:
    return isinstance(node, ir.AugAssign) or (
        isinstance(node, ir.Call) and ir.last_name(node.func).endswith("_")
    )


def _places(program: Program, *, strict: bool) -> dict[ir.Node, _Place]:
    """Return the operations on parameters.

    Args:
        strict: the parameters of a root are whole from its forward to its backward.
    """
    found: dict[ir.Node, _Place] = {}
    for trace in program.traces:
        if runs_alone(trace):
            continue
        for each in trace.operations:
            place = found.setdefault(each.site.node, _Place(each.site.path))
            if _is_stale(trace, each):
                place.add(_STALE)
            if each.name in known.HOOKS and any(unit_of(trace, t.module) for t in each.held[0]):
                place.add(_HOOK)
            sharded = _note_operands(program, trace, each, place, strict=strict)
            if not sharded:
                continue
            losses = [t.source for t in sharded if each.name in known.BACKWARD]
            for source in losses:
                if source is not None:
                    found.setdefault(source.node, _Place(source.path)).add(_LOSS)
            if not losses:
                place.add(_reason(program, each, sharded))
    return found


def _is_stale(trace: Trace, each: Operation) -> bool:
    """True if an operation after the sharding gets parameters that were taken before it."""
    if each.name in known.LOCAL:
        return False
    for tensor in each.held[0] if each.held else ():
        unit = unit_of(trace, tensor.module)
        if unit is not None and tensor.source is None and 0 <= tensor.time < unit.time < each.time:
            return True
    return False


def _note_operands(
    program: Program, trace: Trace, each: Operation, place: _Place, *, strict: bool
) -> list[Tensor]:
    """Note the operands of an operation that are parameters; return the DTensors."""
    sharded = []
    for value, held in zip_longest(_operands(each), each.held, fillvalue=()):
        known_sharded = [t for t in held if _is_sharded(trace, t, strict=strict)]
        sharded += known_sharded
        place.plain |= len(known_sharded) < len(held)
        place.plain |= any(_may_be_whole(program, trace, tensor) for tensor in held)
        if held and not isinstance(value, (tuple, ir.Collection, ir.Comprehension)):
            place.operands[value] = None
    return sharded


def _is_sharded(trace: Trace, tensor: Tensor, *, strict: bool) -> bool:
    """True if a tensor is a DTensor: the root's own parameters are whole after its forward."""
    unit = unit_of(trace, tensor.module)
    if not isinstance(unit, Shard) or unit.generation is not Generation.FSDP2:
        return False
    if unit.time > tensor.time:
        return False
    inner = _holds_units(trace, tensor.module)
    return not strict or inner or not is_gathered(trace, unit, tensor.time)


def _may_be_whole(program: Program, trace: Trace, tensor: Tensor) -> bool:
    """True if a tensor may be one of a root's own, which are whole by then, or not be sharded."""
    unit = unit_of(trace, tensor.module)
    if not isinstance(unit, Shard):
        return False
    return is_gathered(trace, unit, tensor.time) or may_stay_whole(program, unit)


def _holds_units(trace: Trace, module: Object) -> bool:
    return any(module in shard.module.ancestors() for shard in trace.of(Shard))


def _reason(program: Program, each: Operation, sharded: Sequence[Tensor]) -> str:
    """Return why an operation does not work on DTensors, "" if it does."""
    name, node = each.name, each.site.node
    alone = any(_leaves_out_ranks(program, guard) for guard in each.site.guards)
    if _needs_whole(each):
        return _RANK if alone else _WHOLE
    if name in known.COLLECTIVES:
        return _COLLECTIVE
    if name in known.UNSUPPORTED:
        return _UNSUPPORTED
    if name in known.RANDOM_FUNCTIONS | known.RANDOM_METHODS | known.RESETS:
        return _RANDOM
    if name == "[]=" or (name.endswith("_") and _is_part(node)):
        return "" if isinstance(followed(each.operands[0]), Parameters) else _PART
    if name.endswith("_") and sharded[0].partial and name not in known.LOCAL:
        return _REDUCED
    if _mixes(each, sharded):
        return _MIXED
    return _RANK if alone and name not in known.LOCAL and not is_optimizer(name) else ""


def _leaves_out_ranks(program: Program, guard: Guard) -> bool:
    return guard.ranks != EVERY_RANK or (not guard.early and program.is_rank_test(guard))


def _needs_whole(each: Operation) -> bool:
    first = followed(each.operands[0])
    if each.name == "format" or each.name in known.WHOLE_FUNCTIONS | known.WRITES_ARRAYS:
        return True
    if each.name in known.WHOLE_METHODS:
        return _is_tensor(first)
    flat = [value.value for value in each.operands[1:] if isinstance(value, Const)] == [-1]
    return each.name in known.RESHAPES and flat and _is_tensor(first)


def _is_tensor(value: Value) -> bool:
    """True if a value is one tensor rather than a list of some."""
    held = isinstance(value, (Tensor, Object))
    return held or (isinstance(value, (Parameters, StateDict)) and not _is_whole(value))


def _is_whole(value: Parameters | StateDict) -> bool:
    return value.lazy if isinstance(value, Parameters) else not value.element


def _is_part(node: ir.Node) -> bool:
    """True for a method of a part of a tensor, such as ``w[0].zero_()``."""
    method = node.func if isinstance(node, ir.Call) else None
    value = method.value if isinstance(method, ir.Attribute) else None
    while isinstance(value, ir.Attribute):
        value = value.value
    return isinstance(value, ir.Subscript)


def _mixes(each: Operation, sharded: Sequence[Tensor]) -> bool:
    """True if DTensors meet plain tensors of several numbers."""
    others = [v for v in map(followed, each.operands) if not isinstance(v, (Const, Symbol))]
    tensors = [tensor for held in each.held for tensor in held]
    if each.name in known.PRODUCTS:
        return len(tensors) < 2 <= len(others) or len(sharded) < len(tensors)
    if each.name not in known.ARITHMETIC or all(tensor.partial for tensor in sharded):
        return False
    plain = [t for t in tensors if t not in sharded and not t.partial]
    if each.name in known.COPIES and len(tensors) < len(others):
        return True
    return bool(plain) or any(map(_is_plain, others))


def _is_plain(value: Value) -> bool:
    """True for a new tensor, unless it holds a single number."""
    if not isinstance(value, Object) or TENSOR not in class_names(value.cls):
        return False
    made = value.made_by[1] if value.made_by is not None else None
    given = [each.value for each in made.args] if isinstance(made, ir.Call) else []
    single = len(given) == 1 and isinstance(given[0], ir.Constant) and given[0].value == 1
    return not single and not (isinstance(made, ir.Call) and ir.last_name(made.func) == "tensor")
