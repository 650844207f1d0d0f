"""Parameters that only some ranks read, which may hang once they are DTensors."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.fixes.code import Code
from fsdplint.knowledge.suspicious_words import means_rank
from fsdplint.migrate.states import sharded_names
from fsdplint.migrate.step import Context, Found, kept

_ITERATORS = ("parameters", "named_parameters")
# What a DTensor answers without the other ranks, for the whole parameter.
_LOCAL = frozenset(
    {
        *("numel", "nelement", "shape", "size", "ndim", "dim", "dtype", "device"),
        *("requires_grad", "requires_grad_", "is_leaf", "element_size", "is_floating_point"),
    }
)
_WHY = (
    "only some ranks read these parameters; operations on DTensors need all ranks, and the job may "
    "hang: let every rank compute this by hand"
)


def rank_reads(context: Context) -> Iterator[Found]:
    """Yield each use of a sharded model's parameters below a test of the rank."""
    program = context.program
    for (path, scope), names in sharded_names(program).items():
        code = Code.of(program.tree(path))
        for node in code.nodes_of(scope):
            method = node.func if isinstance(node, ir.Call) else None
            if not isinstance(method, ir.Attribute) or method.attr not in _ITERATORS:
                continue
            known = names.get(code.slice(method.value))
            after = known is not None and known.optimizer is None and known.start < node.start
            if after and _is_guarded(code, node) and not _asks_only(code, node):
                yield kept(code, node, _WHY)


def _is_guarded(code: Code, node: ir.Node) -> bool:
    tests = (each.test for each in code.ancestors(node) if isinstance(each, ir.If))
    return any(means_rank(code.slice(test)) for test in tests)


def _asks_only(code: Code, call: ir.Node) -> bool:
    """True if a loop or comprehension takes nothing of the parameters but what is local."""
    statement = code.statement(call)
    around = (statement, *ir.walk(statement))
    loops = [each for each in around if isinstance(each, (ir.For, ir.Clause))]
    targets = [each.target for each in loops if call in ir.walk(each.iterable)]
    bound = [name for each in targets for name in ir.walk(each) if isinstance(name, ir.Name)]
    # Of `name, parameter`, the name is a string.
    names = {name.id for name in bound[-1:]}
    uses = [n for n in around if isinstance(n, ir.Name) and n.id in names and n not in bound]
    return bool(names) and all(map(_is_local, map(code.parent, uses)))


def _is_local(parent: ir.Node | None) -> bool:
    return isinstance(parent, ir.Attribute) and parent.attr in _LOCAL
