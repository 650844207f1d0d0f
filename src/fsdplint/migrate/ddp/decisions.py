"""Saves that each rank decides on by a number of its own, such as the accuracy on its data.

Under DDP only rank 0 took the state, so that its number decided. Now all ranks gather it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import takewhile

from fsdplint.engine import ir
from fsdplint.engine.interpreter.site import Guard
from fsdplint.engine.program import Program
from fsdplint.fixes.code import Code
from fsdplint.fixes.names import dotted
from fsdplint.knowledge.calls import STATE_HELPERS
from fsdplint.knowledge.collectives import ALL_REDUCE
from fsdplint.migrate.helpers import defined_on_ranks
from fsdplint.migrate.own_numbers import OwnNumbers, Variable, variable
from fsdplint.migrate.states import takes_shards
from fsdplint.migrate.step import Change, Context, Found

_DECIDED = "decided_together"
_DEFINITION = f'''def {_DECIDED}(test):
    """Return on every rank whether a test is true on rank 0."""
    result = [bool(test)]
    if dist.is_initialized():
        dist.broadcast_object_list(result, src=0)
    return result[0]


'''
_WHAT = "let rank 0 decide for all ranks, since each has a number of its own"


def decisions(context: Context) -> Iterator[Found]:
    """Yield a change for each test around a state that ranks may answer differently."""
    tests = dict(_tests(context.program))
    if not tests:
        return
    forwards = {e.site.node for t in context.program.traces for e in t.calls("forward")}
    own = OwnNumbers(context, set(_reduced(context)), forwards=forwards)
    for test, path in tests.items():
        code = Code.of(context.program.tree(path))
        if own.has(code, test):
            yield _decided(code, test)


def _tests(program: Program) -> Iterator[tuple[ir.Expr, str]]:
    for trace in program.traces:
        for call in trace.calls("state_dict", *STATE_HELPERS):
            if call.name != "state_dict" or takes_shards(trace, call):
                yield from _around(program, call.site.guards)


def _around(program: Program, guards: Iterable[Guard]) -> Iterator[tuple[ir.Expr, str]]:
    """Yield the tests that all ranks make, which are those before the first of the rank."""
    for guard in takewhile(lambda each: not program.is_rank_test(each), guards):
        statement = program.tree(guard.path).statement(guard.test)
        test = statement.test if isinstance(statement, ir.If) else None
        done = isinstance(test, ir.Call) and ir.last_name(test.func) == _DECIDED
        if test is not None and not done:
            yield test, guard.path


def _reduced(context: Context) -> Iterator[Variable]:
    """Yield the variables that all ranks have alike, since a collective sets them."""
    for code in context.codes(ALL_REDUCE.rpartition(".")[2]):
        for node in ir.walk(code.module):
            if isinstance(node, ir.Call) and context.name(code, node.func) == ALL_REDUCE:
                name = dotted(node.args[0].value) if node.args else None
                if name is not None:
                    yield variable(code, code.scope(node), name)


def _decided(code: Code, test: ir.Expr) -> Change:
    helper, imports = defined_on_ranks(code, _DECIDED, _DEFINITION)
    edit = code.edit(test.start, test.end, f"{_DECIDED}({code.slice(test)})")
    return Change(code.span(test), _WHAT, (edit, *helper), (imports,))
