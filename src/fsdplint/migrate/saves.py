"""State that is taken in one function and written in another, or where only one rank runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fsdplint.engine import ir
from fsdplint.engine.facts.state_files import ShardedWrite, sharded_writes
from fsdplint.engine.interpreter.site import Guard, Site
from fsdplint.engine.program import Program
from fsdplint.finding import Edit, Fix
from fsdplint.fixes.code import Code, Declined, NoFixError
from fsdplint.fixes.every_rank import Guarded, call_on_every_rank
from fsdplint.fixes.gather_state import gather_state, gathered, gathered_write, local_tests
from fsdplint.migrate.step import Change, Context, Found, Kept


def gathers(context: Context) -> Iterator[Found]:
    """Yield a change for each write of sharded state that the rules' own fix does not reach."""
    program = context.program
    facts = {fact.write.site.node: fact for fact in sharded_writes(program)}
    for fact in facts.values():
        if isinstance(gathered_write(program, fact), Fix):
            continue  # left to the rules
        site = fact.write.site
        try:
            edits = _edits(program, fact)
        except NoFixError as reason:
            text = f"`{program.text(site.path, site.node)}`"
            yield Kept(program.span(site), text, str(reason))
        else:
            what = "gather the full state on every rank and write it on one"
            yield Change(program.span(site), what, tuple(edits))


def _edits(program: Program, fact: ShardedWrite) -> list[Edit]:
    """Gather where the states are taken, and let every rank get there."""
    calls = fact.states[0].source.calls
    frames = fact.write.site.frames()
    depth = len(calls)
    path, node = frames[min(depth, len(frames) - 1)]
    if any(each.source.calls != calls for each in fact.states) or frames[:depth] != calls:
        raise NoFixError("the states are taken in several functions; gather them by hand")
    if not isinstance(node, ir.Call):
        raise NoFixError("the state is written by a library's code; gather it by hand")
    states = [gathered(program, fact.trace, state) for state in fact.states]
    known = [state for state in states if state is not None]
    if len(known) < len(states):
        raise NoFixError("the model of this state has no known name here; gather it by hand")
    code = Code.of(program.tree(path))
    local = local_tests(code, Site(path, node), fact.guards)
    edits = list(_made(gather_state(code, node, known, local)).edits)
    for guard in fact.guards:
        edits += _let_all_through(program, guard, frames[:depth])
    return edits


def _let_all_through(
    program: Program, guard: Guard, frames: Sequence[tuple[str, ir.Node]]
) -> tuple[Edit, ...]:
    """Move the call that leads to a gather out of ``guard``, if that is in one of ``frames``."""
    for path, node in frames:
        code = Code.of(program.tree(path))
        if path == guard.path and code.function(guard.test) is code.function(node):
            if not isinstance(node, ir.Call):
                raise NoFixError("a library or a decorator calls the function; gather by hand")
            guarded = Guarded(node, guard.test, guard.rank_tests, (), guard.early, "result", False)
            return _made(call_on_every_rank(code, guarded)).edits
    return ()


def _made(fix: Fix | Declined) -> Fix:
    if isinstance(fix, Declined):
        raise NoFixError(fix.reason)
    return fix
