"""Collectives by which programs combine what each rank computes from FSDP1's shards."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.engine.facts.sharding import unit_of
from fsdplint.engine.interpreter.events import Call, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import Parameters, Tensor, contained
from fsdplint.engine.program import Program
from fsdplint.fixes.code import Code
from fsdplint.fixes.names import dotted
from fsdplint.knowledge.collectives import C10D_CALLS
from fsdplint.migrate.step import Context, Found, kept

_WHY = (
    "it combines what ranks compute from FSDP1's shards; of FSDP2's DTensors, PyTorch computes it "
    "of all ranks already: compute it without this call by hand"
)
_GATHERS = ("summon_full_params", "full_tensor()")
_LISTS = frozenset({"parameters", "named_parameters"})
# Functions that pass parameters on; others, such as optimizers, take them for something else.
_TAKING = frozenset(
    {"enumerate", "filter", "iter", "list", "map", "next", "sorted", "tuple", "zip"}
)
_TAKING |= {"parameters_to_vector"}
# What is the same for a shard and for the whole.
_SAME = frozenset({"device", "dim", "dtype", "element_size", "is_leaf", "ndim", "requires_grad"})
# What combines equal values to the same one.
_IDEMPOTENT = ("MAX", "MIN", "AVG")


def reductions(context: Context) -> Iterator[Found]:
    """Yield each collective on a sharded model's parameters, or on what is computed from them."""
    program = context.program
    found: dict[ir.Node, Code] = {}
    for trace in (*program.traces, *program.method_traces):
        for call in trace.calls(*C10D_CALLS):
            if _is_of_shards(program, trace, call):
                found[call.site.node] = Code.of(program.tree(call.site.path))
    for code in context.codes(*_LISTS):
        for node in code.walk(*(name.rpartition(".")[2] for name in C10D_CALLS)):
            is_call = isinstance(node, ir.Call) and context.name(code, node.func) in C10D_CALLS
            if isinstance(node, ir.Call) and is_call and _is_read_from_shards(code, node):
                found[node] = code
    for node, code in found.items():
        yield kept(code, node, _WHY)


def _is_of_shards(program: Program, trace: Trace, call: Call) -> bool:
    for item in (item for value in call.arguments.values() for item in contained(value)):
        if not isinstance(item, (Parameters, Tensor)) or _gathers(program, item.source):
            continue
        unit = unit_of(trace, item.module, None)
        if unit is not None and unit.time < call.time:
            return True
    return False


def _gathers(program: Program, source: Site | None) -> bool:
    """True if the function that reads parameters gathers them itself."""
    if source is None:
        return False
    tree = program.tree(source.path)
    function = tree.function(source.node)
    return function is not None and any(word in tree.slice(function) for word in _GATHERS)


def _is_read_from_shards(code: Code, call: ir.Call) -> bool:
    """True if the function of a call computes its argument from a model's parameters."""
    if not call.args or any(op in code.slice(call) for op in _IDEMPOTENT):
        return False
    names: set[str] = set()
    nodes = list(code.nodes_of(code.scope(call)))
    while True:
        known = len(names)
        for node in nodes:
            target, value = _binding(node)
            if target is not None and value is not None and _reads(code, value, names):
                names.update(n.id for n in ir.walk(target) if isinstance(n, ir.Name))
        if len(names) == known:
            return _reads(code, call.args[0].value, names)


def _binding(node: ir.Node) -> tuple[ir.Expr | None, ir.Expr | None]:
    if isinstance(node, ir.For):
        return node.target, node.iterable
    if isinstance(node, ir.Assign):
        return node.targets[0], node.value
    return (node.target, node.value) if isinstance(node, ir.AugAssign) else (None, None)


def _reads(code: Code, value: ir.Expr, names: set[str]) -> bool:
    """True if an expression has values of a model's parameters, or of the given names."""
    same = (n for n in ir.walk(value) if isinstance(n, ir.Attribute) and n.attr in _SAME)
    skipped = {node for each in same for node in ir.walk(each)}
    for node in ir.walk(value):
        if node in skipped:
            continue
        if isinstance(node, ir.Name) and node.id in names:
            return True
        if isinstance(node, ir.Call) and ir.last_name(node.func) in _LISTS:
            method, parent = node.func, code.parent(node)
            call = code.parent(parent) if isinstance(parent, ir.Argument) else None
            taken = isinstance(call, ir.Call) and ir.last_name(call.func) in _TAKING
            # Parts of a model may be left out of its shards.
            model = dotted(method.value) if isinstance(method, ir.Attribute) else None
            is_whole = "." not in (model or "a.b").removeprefix("self.")
            if is_whole and (taken or isinstance(parent, (ir.For, ir.Clause))):
                return True
    return False
