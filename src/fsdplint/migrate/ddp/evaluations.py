"""Forward passes of rank 0 alone, which all ranks make once the model is sharded."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.engine.facts.collectives import may_be_alone
from fsdplint.engine.interpreter.site import Guard
from fsdplint.finding import Fix
from fsdplint.fixes.code import Code
from fsdplint.fixes.imports import Imports
from fsdplint.knowledge.names import DISTRIBUTED
from fsdplint.migrate.ddp.only_rank_zero import OnlyRankZero
from fsdplint.migrate.step import Change, Context, Found, kept
from fsdplint.rules.collective_under_rank_guard import missed_collectives, on_every_rank

_RANK_ZERO = frozenset({0})
_NEEDED = "it needs `{}`, which only rank 0 has; make that on all ranks, or split the call, by hand"


def evaluations(context: Context) -> Iterator[Found]:
    """Yield a change for each such forward pass.

    The other ranks draw random numbers for it, which they did not before: they take them back, so
    that they train on the same batches and with the same dropout.
    """
    program = context.program
    facts = list(missed_collectives(program))
    own = OnlyRankZero(context, facts)
    for fact in facts:
        path, node = fact.chain[0]
        if fact.collective.call.name != "forward" or fact.guards[0].ranks != _RANK_ZERO:
            continue
        code = Code.of(program.tree(path))
        needed = next(own.needed(fact.chain), None)
        if needed is not None:
            yield kept(code, node, _NEEDED.format(needed))
            continue
        imports = Imports(code, node)
        torch, dist = imports.module("torch", "torch"), imports.module(DISTRIBUTED, "dist")
        devices = f"range({torch}.cuda.device_count())"
        alone = may_be_alone(program, fact.collective.call.site)
        other = f"{dist}.is_initialized() and " * alone + f"{dist}.get_rank() != 0"
        other = _other_ranks(code, fact.guards[0], node) or other
        fork = f"with {torch}.random.fork_rng({devices}, enabled={other}):"
        fix = on_every_rank(program, fact, facts, fork)
        if isinstance(fix, Fix):
            span = code.span(node)
            what = f"{fix.title}; random numbers of other ranks stay as they are"
            yield Change(span, what, fix.edits, (imports,))


def _other_ranks(code: Code, guard: Guard, node: ir.Node) -> str:
    """Return the test that the other ranks pass, if it is that of the code itself.

    The program may run without a process group as well.
    """
    test = guard.test
    here = guard.path == code.path and code.function(test) is code.function(node)
    text = code.slice(test) if here and isinstance(test, ir.Compare) and guard.taken else ""
    return f"{text.removesuffix('== 0')}!= 0" if text.endswith("== 0") else ""
