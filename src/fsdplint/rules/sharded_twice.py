"""Modules that are sharded more than once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.loops import is_chosen, is_known_one, iterated, loops
from fsdplint.engine.facts.sharding import exclude_each_other
from fsdplint.engine.interpreter.events import Shard
from fsdplint.engine.interpreter.values import Object
from fsdplint.engine.program import Program
from fsdplint.finding import Fix, Safety, Severity
from fsdplint.fixes.code import Code, Declined, NoFixError, builder
from fsdplint.fixes.shard_blocks import module_argument, without_sharding
from fsdplint.knowledge.calls import Generation
from fsdplint.rule import Report, declare

RULE = declare(
    __name__,
    "FSD208",
    summary="`fully_shard` is called twice on the same module",
    severity=Severity.ERROR,
    fix=Safety.UNSAFE,
    since="0.1.0",
)


@dataclass(frozen=True, slots=True)
class Repeat:
    """A module that ``fully_shard`` is called on twice in one run."""

    first: Shard
    again: Shard


def repeats(program: Program) -> Iterator[Repeat]:
    """Yield FSDP2 calls on a module that an earlier call sharded on the same path."""
    for trace in program.traces:
        seen: dict[Object, Shard] = {}
        for shard in trace.of(Shard):
            if shard.generation is not Generation.FSDP2 or not is_known_one(program, shard):
                continue
            if is_chosen(program, shard):
                continue
            first = seen.setdefault(shard.module, shard)
            if first is not shard and _surely_both(program, first, shard):
                yield Repeat(first, shard)


def _surely_both(program: Program, first: Shard, again: Shard) -> bool:
    if exclude_each_other(first.site, again.site) or not program.together(again.site, first.site):
        return False
    if _conditions(first) != _conditions(again):
        return False  # a test may skip a module that is already sharded
    if first.call is again.call and (first.listed or _same_function(program, first, again)):
        return False
    return _is_one(first.module) or _same_elements(program, first, again)


def _conditions(shard: Shard) -> set[object]:
    """Return the branches before a call, except those of exception handlers."""
    keys = {guard.key for guard in shard.site.guards}
    return {key for key in keys if not (isinstance(key, tuple) and key[:1] == ("raises",))}


def _same_function(program: Program, first: Shard, again: Shard) -> bool:
    """True if a recursive function may shard another module with the second call."""
    path, inner = again.site.frames()[-1]
    function = program.tree(path).function(inner)
    frames = (*first.site.calls, *again.site.calls)
    return any(program.tree(p).function(node) is function for p, node in frames if p == path)


def _is_one(module: Object) -> bool:
    """True if it is a single module and does not represent the elements of a container."""
    path = module.path()
    return "[]" not in path and "()" not in path and ".?" not in path


def _same_elements(program: Program, first: Shard, again: Shard) -> bool:
    """True if both calls iterate over all modules of one container."""
    ours, theirs = _iterated(program, first), _iterated(program, again)
    return ours is not None and ours == theirs and not _conditions(first)


def _iterated(program: Program, shard: Shard) -> str | None:
    """Return the attribute that the loop around a call iterates over, None for other loops."""
    trees = [(program.tree(path), node) for path, node in shard.site.frames()]
    inside = ((tree, list(loops(tree, node))) for tree, node in reversed(trees))
    tree, around = next((found for found in inside if found[1]), (trees[-1][0], []))
    iterable = iterated(tree, around[0].iterable) if len(around) == 1 else None
    if not isinstance(iterable, ir.Attribute):
        return None
    if isinstance(around[0], ir.Clause) and around[0].conditions:
        return None
    return iterable.attr


def reports(program: Program) -> Iterator[Report]:
    for fact in repeats(program):
        again = fact.again.site
        yield Report(
            program.span(again),
            f"`{program.text(again.path, fact.again.call)}` shards a module that is already "
            f"sharded {program.where(fact.first.site, again)}: the second call crashes",
            "the module is already sharded",
            (
                program.evidence(fact.first.site, "sharded here first"),
                *program.conditions(fact.first.site, again),
            ),
            partial(_fix, program, fact),
        )


def _fix(program: Program, fact: Repeat) -> Fix | Declined:
    first, again = fact.first, fact.again
    if first.call is again.call:
        return Declined("the same call runs twice for the module; make it run once by hand")
    if first.listed or again.listed:
        return Declined(
            "one call shards a list with the module; remove the module from one call by hand"
        )
    code = Code.of(program.tree(again.site.path))
    theirs = Code.of(program.tree(first.site.path))
    given = [theirs.slice(each.value) for each in first.call.args[1:]]
    if given != [code.slice(each.value) for each in again.call.args[1:]]:
        return Declined("the two calls have different arguments; remove one of them by hand")
    return shard_once(code, again.call)


@builder
def shard_once(code: Code, call: ir.Call) -> Fix:
    """Remove ``call``, and the loop around it if that does nothing else."""
    module = module_argument(call)
    if module is None:
        raise NoFixError(
            f"`{code.short(call)}` hides which argument is the module; remove the call by hand"
        )
    title = f"remove the second call, `{code.short(call)}`"
    return Fix(title, Safety.UNSAFE, (without_sharding(code, call, module.value),))
