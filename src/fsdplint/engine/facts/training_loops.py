"""Loops that train a sharded module on the batches of a loader."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.engine.facts.fix_places import name_in
from fsdplint.engine.facts.gradient_modes import NO_GRADIENTS, gradient_mode
from fsdplint.engine.facts.samplers import distributed_samplers, drawn_from
from fsdplint.engine.facts.weights import related
from fsdplint.engine.frontend.tree import Tree
from fsdplint.engine.interpreter.events import Call, Sharding, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import Const, Object, contained
from fsdplint.engine.program import Program
from fsdplint.finding import Span
from fsdplint.knowledge.data import COUNTS, DATA_LOADERS, ONE_BY_ONE

Loop = tuple[str, ir.For | ir.While]


@dataclass(frozen=True, slots=True)
class Training:
    """A loop over a loader's batches that a sharded module is trained on.

    Attributes:
        loop: where it begins: at a `for`, a ``yield from loader``, or an ``iter(loader)``.
        body: what takes the batches: that `for` or ``yield``, or a loop that calls ``next``.
        epochs: the innermost loop around it, in its own function or in one that calls it, each
            pass of which begins the same loader; None if it runs once.
    """

    loader: Call
    loop: Call
    body: Site
    forward: Call
    shard: Sharding
    epochs: Loop | None


def _loaders(trace: Trace) -> dict[Object, Call]:
    calls = trace.calls(*DATA_LOADERS)
    return {event.result: event for event in calls if isinstance(event.result, Object)}


def trainings(program: Program, trace: Trace) -> Iterator[Training]:
    """Loops over a loader with the forward and the backward of a module that is sharded."""
    loaders = _loaders(trace)
    for loop in trace.calls("iterate"):
        loader = loaders.get(loop.receiver) if isinstance(loop.receiver, Object) else None
        bodies = [] if loader is None else _bodies(program, trace, loop)
        trained = ((body, _trained(program, trace, loop, body)) for body in bodies)
        body, forward = next((pair for pair in trained if pair[1] is not None), (None, None))
        if loader is None or body is None or forward is None:
            continue
        shard = next((s for s in trace.units() if _on(forward, s) and s.time < forward.time), None)
        if shard is not None and program.together(loader.site, shard.site):
            each = _begins_in_each(program, loop.site)
            epochs = _repeated(program, loop.site, loader.site) if each else None
            yield Training(loader, loop, body.site, forward, shard, epochs)


@dataclass(frozen=True, slots=True)
class _Body:
    """A loop that takes batches.

    Attributes:
        time: when it takes the first one.
        alone: what it trains on is surely made of them.
    """

    site: Site
    time: int
    alone: bool = True


def _bodies(program: Program, trace: Trace, begun: Call) -> Iterator[_Body]:
    """The loops that take the batches of a loader once it has begun, the nearest first."""
    tree, node = program.tree(begun.site.path), begun.site.node
    function = tree.function(node)
    if isinstance(node, (ir.For, ir.Yield)):
        yield _Body(begun.site, begun.time)
        if function is None or not function.is_generator:
            return
    elif not isinstance(tree.parent(node), ir.Assign):
        return
    for taken in trace.calls("next batch"):
        if taken.receiver is begun.receiver and taken.time > begun.time:
            around = _loop_around(program, taken.site)
            if around is not None:
                yield _Body(around, taken.time, _is_alone(program, trace, taken, around))


def _loop_around(program: Program, site: Site) -> Site | None:
    """The innermost loop around a place, in its own function or in one that calls it."""
    frames = site.frames()
    for depth in reversed(range(len(frames))):
        path, node = frames[depth]
        for around in program.tree(path).ancestors(node):
            if isinstance(around, (ir.For, ir.While)):
                return Site(path, around, frames[:depth])
            if isinstance(around, (ir.Function, ir.ClassDef)):
                break
    return None


def _is_alone(program: Program, trace: Trace, taken: Call, body: Site) -> bool:
    """Whether each pass of a loop takes a batch, and none of another loader that is known."""
    if isinstance(body.node, ir.For) and not _counts(program.tree(body.path), body.node.iterable):
        return False
    tests = [guard.test for guard in taken.site.guards if guard.progress]
    if not all(isinstance(test, ir.Handler) for test in tests):
        return False
    others = (e for e in trace.calls(*_TAKES) if e.receiver is not taken.receiver)
    return not any(_inside(other.site, body) for other in others)


_TAKES = ("iterate", "next batch")


def _counts(tree: Tree, iterable: ir.Expr) -> bool:
    """Whether a loop goes through numbers, be they shown as a progress bar."""
    iterable = tree.meaning(iterable)
    if not isinstance(iterable, ir.Call):
        return False
    name = ir.last_name(iterable.func)
    if name in ONE_BY_ONE and iterable.args:
        return _counts(tree, iterable.args[0].value)
    return name in COUNTS


def takes(program: Program, begun: Site, node: ir.Node) -> bool:
    """Whether a node is a ``next`` of the iterator that ``batches = iter(loader)`` begins."""
    kept = program.tree(begun.path).parent(begun.node)
    targets = kept.targets if isinstance(kept, ir.Assign) else ()
    if not isinstance(node, ir.Call) or ir.last_name(node.func) != "next" or not node.args:
        return False
    iterator = program.text(begun.path, node.args[0].value)
    return any(program.text(begun.path, target) == iterator for target in targets)


def _on(forward: Call, shard: Sharding) -> bool:
    return isinstance(forward.receiver, Object) and related(forward.receiver, shard.module)


def _trained(program: Program, trace: Trace, loop: Call, body: _Body) -> Call | None:
    """The first forward in a loop, or on what it yields, with a backward before another loop."""
    later = [e for e in trace.calls("forward", "backward", "iterate") if e.time > body.time]
    forward = None
    for event in later:
        inside = _inside(event.site, body.site)
        if event.name == "forward" and gradient_mode(program, event.site) not in NO_GRADIENTS:
            if (inside and body.alone) or _fed(event, loop):
                forward = forward or event
            elif not body.alone:
                forward = None
        elif event.name == "backward" and forward is not None:
            return forward
        elif event.name == "iterate" and not inside and event.receiver is not loop.receiver:
            return None
    return None


def _fed(forward: Call, loop: Call) -> bool:
    """Whether a forward gets a part of what a loop goes through."""
    loader = loop.receiver
    given = [item for value in forward.arguments.values() for item in contained(value)]
    return any(isinstance(item, Object) and _part_of(item, loader) for item in given)


def is_divided(trace: Trace, forward: Call) -> bool:
    """Whether a forward gets a batch of this rank's part of the data, or runs in a loop over it."""
    loaders, samplers = _loaders(trace), {made for _, made in distributed_samplers(trace)}
    for loop in trace.calls("iterate"):
        loader = loaders.get(loop.receiver) if isinstance(loop.receiver, Object) else None
        sampled = loader is not None and drawn_from(loader)[0] in samplers
        if sampled and (_fed(forward, loop) or _inside(forward.site, loop.site)):
            return True
    return False


def _part_of(item: Object, whole: object) -> bool:
    return any(above is whole for above in item.ancestors())


def _inside(site: Site, loop: Site) -> bool:
    """Whether a place is reached from inside of the loop that ``loop`` enters."""
    depth = len(loop.calls)
    frames = site.frames()
    if frames[:depth] != loop.calls or len(frames) <= depth:
        return False
    path, node = frames[depth]
    return path == loop.path and loop.node.start <= node.start < loop.node.end


def _repeated(program: Program, loop: Site, made: Site) -> Loop | None:
    """The innermost loop around ``loop`` that what is made at ``made`` outlives.

    Where a generator begins it again without end, that is a loop which calls the generator, if
    there is one: it may take the batches of one epoch only.
    """
    origins, endless = set(made.frames()), None
    for path, node in reversed(loop.frames()):
        tree = program.tree(path)
        made_here = any(each == path and n is node for each, n in origins)
        if made_here or isinstance(node, (ir.FunctionDef, ir.ClassDef)):
            return endless
        function = tree.function(node)
        for around in tree.ancestors(node):
            if isinstance(around, ir.Function):
                break
            if isinstance(around, ir.For) and _covers(around.iterable, node):
                continue  # it is what this loop goes through
            if isinstance(around, (ir.For, ir.While)) and not _runs_once(around):
                if any(p == path and _covers(around, n) for p, n in origins):
                    return endless
                if isinstance(around, ir.For) or function is None or not function.is_generator:
                    return path, around
                endless = endless or (path, around)
    return endless


def _covers(whole: ir.Node, node: ir.Node) -> bool:
    return whole.start <= node.start and node.end <= whole.end


def _runs_once(loop: ir.For | ir.While) -> bool:
    counted = loop.iterable if isinstance(loop, ir.For) else None
    if not isinstance(counted, ir.Call) or not isinstance(counted.func, ir.Name):
        return False
    given = [argument.value for argument in counted.args]
    ends = [value.value for value in given if isinstance(value, ir.Constant)]
    return counted.func.id == "range" and len(given) == 1 and ends == [1]


def _begins_in_each(program: Program, begun: Site) -> bool:
    """Whether a pass of the loop around, or a call of the function, always begins the loader."""
    if isinstance(begun.node, (ir.For, ir.Yield)):
        return True
    tree = program.tree(begun.path)
    around = tree.parent(tree.statement(begun.node))
    return isinstance(around, (ir.For, ir.While, ir.Function))


def over(loop: Call) -> Span:
    """What a loop goes through, in the code."""
    node = loop.site.node
    each = node.iterable if isinstance(node, ir.For) else node
    return Span(loop.site.path, each.start, each.end)


def repeats(program: Program, training: Training) -> bool:
    """Whether a loop begins the loader again, or a handler whenever its batches are used up."""
    return training.epochs is not None or _begins_again(program, training.loop.site)


def _begins_again(program: Program, begun: Site) -> bool:
    tree = program.tree(begun.path)
    handler = tree.parent(tree.statement(begun.node))
    if not isinstance(handler, ir.Handler) or handler.type is None:
        return False
    attempt = tree.parent(handler)
    assert isinstance(attempt, ir.Try)
    ended = ir.last_name(handler.type) == "StopIteration"
    tried = (node for statement in attempt.body for node in ir.walk(statement))
    return ended and any(takes(program, begun, node) for node in tried)


def is_repeated(program: Program, training: Training) -> bool:
    """Whether another loop runs the one over epochs again with the same loader."""
    if training.epochs is None:
        return False
    path, loop = training.epochs
    frames = training.loop.site.frames()
    inside = [d for d, (p, node) in enumerate(frames) if p == path and _covers(loop, node)]
    around = Site(path, loop, frames[: inside[-1]])
    return _repeated(program, around, training.loader.site) is not None


# Names


def loader_name(program: Program, training: Training, epochs: Loop) -> str | None:
    """What the loop over epochs may call the loader, if it has a name there."""
    path, loop = epochs
    return name_in(program, training.loader.site, path, loop) or _iterated(
        program, training, epochs
    )


def begun_name(program: Program, training: Training) -> str | None:
    """What the loader is called where its loop begins, if it has a name there."""
    begun = training.loop
    names = [str(each.value) for each in begun.arguments.args if isinstance(each, Const)]
    if names or begun.result is not begun.receiver:
        return names[0] if names else None
    text = program.text(begun.site.path, _gone_through(begun.site.node))
    return text if text.replace(".", "").isidentifier() else None


def _gone_through(node: ir.Node) -> ir.Node:
    if isinstance(node, ir.For):
        return node.iterable
    if isinstance(node, ir.Yield):
        return node.value or node
    return node.args[0].value if isinstance(node, ir.Call) and node.args else node


def _iterated(program: Program, training: Training, epochs: Loop) -> str | None:
    """The name by which the inner loop knows the loader, if the loop around it knows it too."""
    path, loop = epochs
    inner, tree = training.loop.site, program.tree(path)
    names = [str(each.value) for each in training.loop.arguments.args if isinstance(each, Const)]
    if inner.path != path:
        return None
    if tree.function(inner.node) is not tree.function(loop):
        classes = [_class(tree, node) for node in (inner.node, loop)]
        names = [name for name in names if name.startswith("self.") and classes[0] is classes[1]]
    return names[0] if names else None


def _class(tree: Tree, node: ir.Node) -> ir.Node | None:
    return next((each for each in tree.ancestors(node) if isinstance(each, ir.ClassDef)), None)
