"""What only rank 0 sets up, such as a log, and what other ranks do not have therefore."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fsdplint.engine import ir
from fsdplint.fixes.code import Code
from fsdplint.fixes.names import dotted
from fsdplint.migrate.own_numbers import OwnNumbers
from fsdplint.migrate.step import Context
from fsdplint.rules.collective_under_rank_guard import MissedCollective

# How a library begins its work, as `wandb.init` does.
_BEGINS = "init"


class OnlyRankZero:
    """The variables and libraries that are set up under tests like those around ``facts``."""

    def __init__(self, context: Context, facts: Sequence[MissedCollective]) -> None:
        self._program = context.program
        guards = {guard.test: guard.path for fact in facts for guard in fact.guards}
        tests = {self._program.text(path, test) for test, path in guards.items()}
        arms = [
            node
            for code in context.codes(*tests)
            for node in ir.walk(code.module)
            if isinstance(node, ir.If) and code.slice(node.test) in tests and not node.orelse
            if node.test not in guards
        ]
        nodes = {each for arm in arms for each in ir.walk(arm)}
        calls = (each.func for each in nodes if isinstance(each, ir.Call))
        begun = (func for func in calls if ir.last_name(func) == _BEGINS)
        self._modules = {(dotted(func) or "").rpartition(".")[0] for func in begun} - {""}

        def assigned(node: ir.Node) -> Iterator[str]:
            if isinstance(node, ir.Assign) and node in nodes:
                yield from filter(None, map(dotted, node.targets))

        self._own = OwnNumbers(context, names=assigned, calls=frozenset())

    def needed(self, chain: Sequence[tuple[str, ir.Node]]) -> Iterator[str]:
        """Yield what the first call of a chain takes, and what the later ones call methods of."""
        (path, call), *inner = chain
        code = Code.of(self._program.tree(path))
        values = [each.value for each in call.args] if isinstance(call, ir.Call) else []
        yield from (code.slice(each) for each in values if self._own.has(code, each))
        for path, inside in inner:
            code = Code.of(self._program.tree(path))
            for node in code.nodes_of(code.scope(inside)):
                method = node.func if isinstance(node, ir.Call) else None
                owner = method.value if isinstance(method, ir.Attribute) else None
                if owner is not None and (
                    dotted(owner) in self._modules or self._own.has(code, owner)
                ):
                    yield code.slice(owner)
