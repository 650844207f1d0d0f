"""Decisions by a number of each rank's own, such as its loss, which ranks have to make alike."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.interpreter.events import MethodCall, Shard
from fsdplint.engine.program import Program
from fsdplint.fixes.code import Code
from fsdplint.fixes.names import dotted
from fsdplint.migrate.helpers import defined_on_ranks
from fsdplint.migrate.own_numbers import MEAN, OwnNumbers, Variable, set_by, variable
from fsdplint.migrate.single.conditions import Conditions
from fsdplint.migrate.single.deciding import deciding
from fsdplint.migrate.single.rank_zero import is_guarded, start
from fsdplint.migrate.step import Change, Context, Found, attempt

_DEFINITION = f'''def {MEAN}(value):
    """Return the mean of a number over all ranks."""
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, float(value))
    return sum(values) / len(values)


'''
_ORDERS = frozenset({"LessThan", "LessThanEqual", "GreaterThan", "GreaterThanEqual"})
# Functions that take a plain number.
_TESTS = frozenset({"math.isfinite", "math.isinf", "math.isnan", "numpy.isfinite", "numpy.isnan"})
_PLATEAU = "ReduceLROnPlateau"
_WHAT = "decide by the mean over all ranks, since each has a number of its own"


def decisions(context: Context) -> Iterator[Found]:
    """Yield a change for each comparison of numbers that may differ between ranks."""
    if start(context) is None:
        return
    agreed: set[Variable] = set()
    done: set[ir.Expr] = set()
    codes, computed = list(context.codes("")), _forwards(context.program)
    matters, conditions = deciding(codes), Conditions(codes)
    while True:
        own = OwnNumbers(context, agreed, forwards=computed)
        found = _first(context, own, matters, conditions, done)
        if found is None:
            return
        code, statement, operand = found
        done.add(operand)
        rebinds = _rebinds(code, statement, operand)
        if rebinds:
            agreed.add(variable(code, code.scope(operand), code.slice(operand)))
        yield from attempt(code, operand, partial(_agreed, code, statement, operand, rebinds))


def _forwards(program: Program) -> set[ir.Node]:
    """Return the calls of models that are sharded, and of their methods that run as forwards.

    Ranks compute differently of the same data, too: each has statistics of its own, such as those
    of batch norm, and GPUs round differently.
    """
    found: set[ir.Node] = set()
    for trace in program.traces:
        models = {shard.module for shard in trace.of(Shard)}
        found |= {c.site.node for c in trace.calls("forward") if c.receiver in models}
        methods = (m for m in trace.of(MethodCall) if m.module in models and m.hooked)
        found |= {m.site.node for m in methods}
    return found


def _first(
    context: Context,
    own: OwnNumbers,
    matters: Collection[ir.Node],
    conditions: Conditions,
    done: Collection[ir.Expr],
) -> tuple[Code, ir.Node, ir.Expr] | None:
    """Return the first statement that decides by such a number, and the number.

    What a statement sets by itself, such as the best number so far, comes last: it is alike on all
    ranks once the others are.
    """
    for code in own.codes:
        for node in ir.walk(code.module):
            asks = node in matters or isinstance(node, ir.Expression)
            tests = conditions.of(code, node) if asks else ()
            every = _operands(context, own, code, node, tests) if asks else ()
            found = [each for each in every if each not in done]
            if found and not is_guarded(code, node):
                set_here = {name for n in ir.walk(node) for name, _ in set_by(n)}
                return code, node, min(found, key=lambda e: dotted(e) in set_here)
    return None


def _operands(
    context: Context, own: OwnNumbers, code: Code, node: ir.Node, tests: Iterable[ir.Expr]
) -> Iterator[ir.Expr]:
    """Yield the numbers of each rank's own that a statement decides by."""
    for each in tests:
        if isinstance(each, ir.Compare) and each.op in _ORDERS:
            yield from (side for side in (each.left, each.right) if own.has(code, side))
        elif isinstance(each, ir.Call) and each.args:
            first = each.args[0].value
            if context.name(code, each.func) in _TESTS and own.has(code, first):
                yield first
    call = node.value if isinstance(node, ir.Expression) else None
    if isinstance(call, ir.Call) and ir.last_name(call.func) == "step":
        plateau = any(_PLATEAU in each.text for each in own.codes)
        yield from (e.value for e in call.args[:1] if plateau and own.has(code, e.value))


def _rebinds(code: Code, statement: ir.Node, operand: ir.Expr) -> bool:
    """True if a variable can become the mean before a statement."""
    before = isinstance(statement, (ir.Assign, ir.Expression, ir.Return)) or (
        isinstance(statement, ir.If) and not code.is_elif(statement)
    )
    return before and isinstance(operand, ir.Name) and _is_number(code, operand)


def _agreed(code: Code, statement: ir.Node, operand: ir.Expr, rebinds: bool) -> Change:
    """Replace a number by its mean over all ranks, a variable for good."""
    helper, imports = defined_on_ranks(code, MEAN, _DEFINITION)
    name = code.slice(operand)
    edit = code.edit(operand.start, operand.end, f"{MEAN}({name})")
    if rebinds:
        line = f"{code.indentation(statement)}{name} = {MEAN}({name}){code.newline}"
        edit = code.insert_lines(code.line_start(statement.start), line)
    return Change(code.span(operand), _WHAT, (edit, *helper), (imports,))


def _is_number(code: Code, name: ir.Name) -> bool:
    """True if a variable is no tensor that gradients are computed of, nor any other object."""
    uses = (n for n in code.nodes_of(code.scope(name)) if isinstance(n, ir.Attribute))
    if any(isinstance(each.value, ir.Name) and each.value.id == name.id for each in uses):
        return False
    backward = (
        node.func.value
        for node in ir.walk(code.module)
        if isinstance(node, ir.Call)
        and isinstance(node.func, ir.Attribute)
        and node.func.attr == "backward"
    )
    return not any(dotted(n) == name.id for each in backward for n in ir.walk(each))
