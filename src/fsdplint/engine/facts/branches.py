"""Whether branches keep one place from another: errors that are caught, and order on a path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

from fsdplint.engine import ir
from fsdplint.engine.frontend.tree import Tree
from fsdplint.engine.interpreter import releases
from fsdplint.engine.interpreter.events import Trace
from fsdplint.engine.interpreter.shape import leaves
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.program import Program

K = TypeVar("K")
F = TypeVar("F")

_EVERYTHING = frozenset({"Exception", "BaseException"})
_NO_ERRORS = frozenset({"KeyboardInterrupt", "SystemExit", "GeneratorExit"})
_PARENTS = {"ModuleNotFoundError": "ImportError"}


def is_caught(
    program: Program, site: Site, error: str | None = None, *, named: bool = False
) -> bool:
    """Whether a `try` around a place, or around a call that leads there, handles ``error``.

    Args:
        error: the name of its class; None for one whose class depends on the release.
        named: whether a handler for all errors is none, since it expects none in particular.
    """
    return any(handles(program.tree(path), node, error, named) for path, node in site.frames())


def is_for_some_releases(trace: Trace, site: Site) -> bool:
    """Whether a place is reached with some of the releases of PyTorch only, by a test of them."""
    long = {number: key for key, number in trace.keys.items()}
    return any(releases.asks(guard.key, long) for guard in site.guards)


def handles(tree: Tree, node: ir.Node, error: str | None, named: bool = False) -> bool:
    """Whether a `try` of the same file around ``node`` handles ``error`` and goes on."""
    inside: ir.Node = node
    for around in tree.ancestors(node):
        if isinstance(around, ir.Try) and inside in around.body:
            going_on = [each for each in around.handlers if not isinstance(each.body[-1], ir.Raise)]
            wide = [each for each in going_on if not _names(each).isdisjoint(_EVERYTHING)]
            if any(_is_for(each, error) for each in going_on if not (named and each in wide)):
                return True
        if isinstance(around, ir.Function):
            return False
        inside = around
    return False


def _is_for(handler: ir.Handler, error: str | None) -> bool:
    names = _names(handler)
    if error is None:
        return not names <= _NO_ERRORS
    return bool(names & {error, _PARENTS.get(error, error), *_EVERYTHING})


def _names(handler: ir.Handler) -> set[str]:
    """The last names of the errors that a handler is for."""
    if handler.type is None:
        return set(_EVERYTHING)
    nodes = list(ir.walk(handler.type))
    names = {node.id for node in nodes if isinstance(node, ir.Name)}
    return names | {node.attr for node in nodes if isinstance(node, ir.Attribute)}


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


def on_every_path(judged: Iterable[tuple[K, F | None]]) -> Iterator[F]:
    """The facts of those places of which no path says None, each place with its key."""
    pairs = list(judged)
    refuted = {key for key, fact in pairs if fact is None}
    return (fact for key, fact in pairs if fact is not None and key not in refuted)


def tests_in_the_text(program: Program, site: Site) -> Iterator[str]:
    """Yield the tests that lead to a place, of which one on a constant rank leaves no guard.

    `main(rank=0)` is a run of one process, in which rank 0 is every rank.
    """
    for path, node in site.frames():
        tree = program.tree(path)
        scope = tree.function(node) or tree.module
        for branch in ir.walk_scope(*scope.body):
            if not isinstance(branch, ir.If) or branch.start > node.start:
                continue
            if node.end <= branch.end or leaves(branch.body):
                yield program.text(path, branch.test)
