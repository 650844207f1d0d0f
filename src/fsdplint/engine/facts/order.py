"""Whether what stands in order on one path also happens so in a run of the program."""

from __future__ import annotations

from fsdplint.engine.interpreter.events import Trace
from fsdplint.engine.interpreter.site import Site


def follows(trace: Trace, first: Site, later: Site) -> bool:
    """Whether one run surely has both, if by an option that only the first one hangs on.

    A loop is taken to have an element.
    """
    held = {(guard.key, guard.taken) for guard in later.guards} | set(trace.decisions)
    own = [g for g in first.guards if (g.key, g.taken) not in held]
    own = [g for g in own if not (g.early and g.progress and not g.divergent)]
    if any(guard.progress or guard.divergent for guard in own):
        return False
    shared = {(guard.key, guard.taken) for guard in first.guards} | set(trace.decisions)
    return not own or all((g.key, g.taken) in shared or g.progress for g in later.guards)
