"""States that are taken after an error in training, which other ranks may not have."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.engine.interpreter.site import Guard
from fsdplint.engine.program import Program
from fsdplint.fixes.code import Code
from fsdplint.knowledge.calls import BACKWARDS, STATE_HELPERS
from fsdplint.migrate.states import takes_shards
from fsdplint.migrate.step import Context, Found, kept

_WHY = (
    "a rank that has an error in training takes this state alone, and waits for the others to "
    "gather it; save at intervals instead, by hand"
)


def states_after_errors(context: Context) -> Iterator[Found]:
    """Yield each state that is taken in a handler of errors of training."""
    program = context.program
    found: dict[ir.Node, str] = {}
    for trace in program.traces:
        for call in trace.calls("state_dict", *STATE_HELPERS):
            shards = call.name != "state_dict" or takes_shards(trace, call)
            if shards and any(_handles_training(program, guard) for guard in call.site.guards):
                found[call.site.node] = call.site.path
    for node, path in found.items():
        yield kept(Code.of(program.tree(path)), node, _WHY)


def _handles_training(program: Program, guard: Guard) -> bool:
    """True if ``guard`` is a handler of a `try` whose body makes a backward, and makes none.

    One that trains again takes its states as the body does.
    """
    if not isinstance(guard.test, ir.Handler):
        return False
    around, handler = program.tree(guard.path).parent(guard.test), guard.test
    places = {
        node.start
        for trace in program.traces
        for call in trace.calls(*BACKWARDS)
        for path, node in call.site.frames()
        if path == guard.path and around is not None and around.start <= node.start < around.end
    }
    return bool(places) and not any(handler.start <= place < handler.end for place in places)
