"""Loops and branches that each rank takes by itself, though all have to take them together."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.engine.facts.sharding import unit_of
from fsdplint.engine.interpreter.events import Shard
from fsdplint.engine.interpreter.values import Object
from fsdplint.fixes.code import Code
from fsdplint.fixes.names import dotted
from fsdplint.knowledge.tensors import SEEDED
from fsdplint.migrate.own_numbers import OwnNumbers
from fsdplint.migrate.single.deciding import deciding
from fsdplint.migrate.step import Context, Found, kept

_EPISODES = (
    "each rank runs an environment of its own, and may do this more often than the other ranks, "
    "which then wait; let all ranks make as many steps by hand"
)
_DRAWN = (
    "each rank draws its own random number here, and the forward pass of a sharded model needs all "
    "ranks; seed the generator alike on all ranks by hand"
)
# What a step of an environment returns at least: observation, reward, and whether it ended.
_RESULTS = 3


def own_choices(context: Context) -> Iterator[Found]:
    """Yield what the environment of one rank decides, and random numbers that nothing seeds."""
    ended = OwnNumbers(context, names=_results, calls=frozenset())
    matters = deciding(ended.codes, tests=True)
    for code in ended.codes:
        for node in code.walk("if", "while"):
            if not isinstance(node, (ir.If, ir.While)) or node not in matters:
                continue
            if ended.has(code, node.test):
                yield kept(code, node.test, _EPISODES)
    yield from _drawn(context)


def _results(node: ir.Node) -> Iterator[str]:
    """Yield the variables that hold what a step of an environment returns."""
    call = node.value if isinstance(node, ir.Assign) else None
    if isinstance(call, ir.Call) and ir.last_name(call.func) == "step":
        for target in node.targets if isinstance(node, ir.Assign) else ():
            if isinstance(target, ir.Collection) and len(target.elements) >= _RESULTS:
                yield from filter(None, map(dotted, target.elements))


def _skips(code: Code) -> Iterator[ir.Expr]:
    """Yield the tests by which a forward pass may leave out a block of a loop."""
    for node in code.walk("for"):
        if isinstance(node, ir.For) and getattr(code.function(node), "name", "") == "forward":
            blocks = {each.id for each in ir.walk(node.target) if isinstance(each, ir.Name)}
            for each in (inner for inner in ir.walk(node) if isinstance(inner, ir.If)):
                if any(_takes_part(n, blocks) for s in each.body for n in ir.walk(s)):
                    yield each.test


def _takes_part(node: ir.Node, blocks: set[str]) -> bool:
    called = node.func if isinstance(node, ir.Call) else None
    return isinstance(node, ir.Continue) or (isinstance(called, ir.Name) and called.id in blocks)


def _drawn(context: Context) -> Iterator[Found]:
    """Yield each test by such a number before a forward pass of a part of a sharded model."""
    called = {
        context.name(code, node.func)
        for code in context.codes("random")
        for node in ir.walk(code.module)
        if isinstance(node, ir.Call)
    }
    free = tuple(prefix for prefix, seed in SEEDED.items() if seed not in called)
    calls = {name for name in called if name.startswith(free)}
    drawn = OwnNumbers(context, names=lambda _: (), calls=calls)
    program = context.program
    found: dict[ir.Node, str] = {}
    for trace in program.traces:
        for call in trace.calls("forward"):
            if isinstance(call.receiver, Object) and unit_of(trace, call.receiver) is not None:
                found |= {guard.test: guard.path for guard in call.site.guards}
    if any(sum(1 for _ in trace.of(Shard)) > 1 for trace in program.traces):
        found |= {test: code.path for code in drawn.codes for test in _skips(code)}
    for test, path in found.items():
        code = Code.of(program.tree(path))
        if path in context.files and drawn.has(code, test):
            yield kept(code, test, _DRAWN)
