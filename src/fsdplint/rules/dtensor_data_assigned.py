"""Assignments to the `data` of parameters that are DTensors, which change nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.sharding import is_gathered, runs_alone, sharding_of
from fsdplint.engine.interpreter.events import Shard, Store, Trace
from fsdplint.engine.interpreter.modules import is_parameter
from fsdplint.engine.interpreter.values import Object, Parameters, read_from
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.code import Code, NoFixError, builder, require_exact
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import dotted
from fsdplint.knowledge.names import TENSOR
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD320",
    summary="assigning to `.data` of a DTensor parameter changes nothing",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
    preview="its precision on public code has not been measured.",
)

# Words of a test that may leave DTensors out.
_TELLS_APART = re.compile(
    r"tensor|local|shard|ignore|fsdp|placement|isinstance|hasattr|expert", re.I
)
# Methods that give the same values, perhaps elsewhere or as another dtype.
_SAME_VALUES = frozenset(
    {
        "bfloat16",
        "clone",
        "contiguous",
        "cpu",
        "cuda",
        "detach",
        "float",
        "half",
        "pin_memory",
        "to",
        "type",
    }
)


@dataclass(frozen=True, slots=True)
class LostAssignment:
    """A ``store`` to the `data` of parameters that ``shard`` has made DTensors."""

    store: Store
    shard: Shard
    value: ir.Expr


def lost_assignments(program: Program) -> Iterator[LostAssignment]:
    """Assignments of new values to the `data` of parameters that surely are shards."""
    for trace in program.traces:
        stores = [store for store in trace.of(Store) if store.name == "data"]
        if not stores or runs_alone(trace):
            continue
        for store in stores:
            value = _new_values(program, store)
            shard = None if value is None else _shard(trace, store)
            if value is not None and shard is not None and program.together(store.site, shard.site):
                yield LostAssignment(store, shard, value)


def _new_values(program: Program, store: Store) -> ir.Expr | None:
    """The expression that is assigned, if it may hold other values than the parameter has."""
    tree, target = program.tree(store.site.path), store.site.node
    statement = tree.parent(target)
    if not isinstance(statement, ir.Assign) or not isinstance(target, ir.Attribute):
        return None
    if any(_TELLS_APART.search(program.words(guard)) for guard in store.site.guards):
        return None
    calls = [node for node in ir.walk(statement.value) if isinstance(node, ir.Call)]
    if any(_is_in_place(call) for call in calls):
        return None
    own = {dotted(target), dotted(target.value)}
    return None if dotted(_behind_views(statement.value)) in own else statement.value


def _is_in_place(call: ir.Call) -> bool:
    name = ir.last_name(call.func) or ""
    return name.endswith("_") and not name.endswith("__")


def _behind_views(value: ir.Expr) -> ir.Expr:
    while (
        isinstance(value, ir.Call)
        and isinstance(value.func, ir.Attribute)
        and value.func.attr in _SAME_VALUES
    ):
        value = value.func.value
    return value


def _shard(trace: Trace, store: Store) -> Shard | None:
    """The call of `fully_shard` that surely made DTensors of what is assigned to."""
    owner, target = store.owner, store.site.node
    if isinstance(owner, Parameters):
        module, since = owner.module, store.time if owner.lazy else owner.time
    elif isinstance(owner, Object) and is_parameter(owner) and owner.parent is not None:
        base = target.value if isinstance(target, ir.Attribute) else None
        if not isinstance(base, ir.Attribute):
            return None  # it was taken at another time
        module, since = owner.parent, store.time
    else:
        return None
    shard = sharding_of(trace, module, before=store.time)
    if shard is None or shard.may_leave_out:
        return None
    return None if since < shard.time or _may_be_whole(trace, shard, module, store) else shard


def _may_be_whole(trace: Trace, shard: Shard, module: Object, store: Store) -> bool:
    """Whether the parameters may be gathered for the time being."""
    if any(call.time < store.time for call in trace.calls("unshard")):
        return True
    units = (s for s in trace.of(Shard) if s.time < store.time)
    if any(module in s.module.ancestors() for s in units):
        return False  # of what is in its blocks, nothing is
    return is_gathered(trace, shard, store.time)


def reports(program: Program) -> Iterator[Report]:
    for fact in lost_assignments(program):
        site, shard = fact.store.site, fact.shard
        sharding = program.text(shard.site.path, shard.call.func)
        yield Report(
            program.span(site),
            f"assigning to `{program.text(site.path, site.node)}` changes nothing: `{sharding}` "
            f"{program.where(shard.site, site)} made the parameter "
            "a DTensor, whose shard keeps its "
            "old values",
            "changes nothing",
            (
                program.evidence(shard.site, "the parameters become DTensors"),
                *program.conditions(site, shard.site),
            ),
            partial(_copy, program, fact),
        )


@builder
def _copy(program: Program, fact: LostAssignment) -> Fix:
    """Copies into the shard, from a DTensor that is sharded alike."""
    code, target = Code.of(program.tree(fact.store.site.path)), fact.store.site.node
    require_exact(code)
    statement, value = code.parent(target), code.slice(fact.value)
    if not isinstance(statement, ir.Assign) or len(statement.targets) != 1:
        raise NoFixError("the value is assigned to several targets")
    if code.comments(statement.start, statement.end):
        raise NoFixError("there is a comment in the statement")
    assert isinstance(target, ir.Attribute)
    if read_from(fact.store.value) is None:
        edit = code.edit(statement.start, statement.end, f"{code.slice(target)}.copy_({value})")
        return Fix("copy the value into the shard", Safety.UNSAFE, (edit,))
    parameter = dotted(target.value)
    if parameter is None:
        raise NoFixError(f"`{code.short(target.value)}` is not a plain name")
    imports = Imports(code, statement)
    function = imports.name(TENSOR, "distribute_tensor")
    part = f"{function}({value}, {parameter}.device_mesh, {parameter}.placements)"
    text = f"{code.slice(target)}.copy_({part})"
    edits = (*imports.edits(), code.edit(statement.start, statement.end, text))
    return Fix("copy this rank's shard of the tensor into the parameter", Safety.UNSAFE, edits)
