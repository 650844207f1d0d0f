"""What training loops are fed with: the same data on every rank, the same order in every epoch."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.engine.facts.branches import on_every_path
from fsdplint.engine.facts.datasets import is_fixed, streamed_rows, words
from fsdplint.engine.facts.fix_places import name_in
from fsdplint.engine.facts.gradient_modes import NO_GRADIENTS, gradient_mode
from fsdplint.engine.facts.weights import related
from fsdplint.engine.frontend.tree import Tree
from fsdplint.engine.interpreter.events import Call, Shard, Sharding, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import (
    Const,
    Object,
    Sequence,
    Taint,
    class_names,
    contained,
    taint_of,
)
from fsdplint.engine.program import Program
from fsdplint.finding import Span
from fsdplint.knowledge.collectives import PARALLELIZE_MODULE
from fsdplint.knowledge.data import (
    COUNTS,
    DATA_LOADERS,
    DISTRIBUTED_SAMPLERS,
    ONE_BY_ONE,
    divides,
    mentions_ranks,
    only_iterates,
)
from fsdplint.knowledge.initialisation import SEEDS
from fsdplint.knowledge.launch import DEVICE_MESHES, MESHES
from fsdplint.knowledge.names import KEYWORD_ONLY

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


@dataclass(frozen=True, slots=True)
class SharedData:
    """A training loop whose loader gives every rank the same batches.

    Attributes:
        seed: the call that has all ranks shuffle alike, None where nothing is shuffled.
        rows: what a library loads for each rank and the loader only iterates, if it does.
    """

    training: Training
    seed: Call | None
    rows: Object | None


@dataclass(frozen=True, slots=True)
class SameOrder:
    """Epochs that a sampler shuffles alike, since nobody tells it which one it is.

    Attributes:
        epochs: the loop over them; None where a handler begins the next one when the last ends.
    """

    sampler: Call
    training: Training
    epochs: Loop | None


def shared_data(program: Program) -> Iterator[SharedData]:
    """Loaders without any part for each rank, of data known to be the same in every process."""
    return on_every_path(pair for trace in program.traces for pair in _shared(program, trace))


def _shared(program: Program, trace: Trace) -> Iterator[tuple[ir.Node, SharedData | None]]:
    several = _many_dimensions(trace)
    for training in _trainings(program, trace):
        loader, seed = training.loader, None
        elsewhere = not isinstance(training.shard, Shard)  # and with it perhaps a mesh
        if several or elsewhere or not _is_whole(program, trace, loader) or _adapted(trace, loader):
            yield loader.site.node, None
            continue
        shuffle = loader.argument(2, "shuffle")
        plain = shuffle is None or (isinstance(shuffle, Const) and not shuffle.value)
        if not plain and isinstance(shuffle, Const):
            given = loader.argument(KEYWORD_ONLY, "generator")
            seed = _common_seed(trace, training.loop.time) if given is None else None
        if (plain or seed is not None) and not _divided(program, training):
            rows = streamed_rows(loader.argument(0, "dataset"))
            yield loader.site.node, SharedData(training, seed, rows)


def same_orders(program: Program) -> Iterator[SameOrder]:
    """Shuffling distributed samplers that several epochs go through without ``set_epoch``."""
    return on_every_path(pair for trace in program.traces for pair in _ordered(program, trace))


def _ordered(program: Program, trace: Trace) -> Iterator[tuple[ir.Node, SameOrder | None]]:
    samplers = _results(trace, DISTRIBUTED_SAMPLERS)
    for training in _trainings(program, trace):
        given = training.loader.argument(KEYWORD_ONLY, "sampler")
        sampler = samplers.get(given) if isinstance(given, Object) else None
        if sampler is None or not _shuffles(sampler):
            continue
        if training.epochs is None and not _begins_again(program, training.loop.site):
            continue
        if _is_told(trace, sampler, training.loader) or _adapted(trace, sampler):
            yield sampler.site.node, None
        elif not _adapted(trace, training.loader):
            yield sampler.site.node, SameOrder(sampler, training, training.epochs)


# Training loops


def _results(trace: Trace, names: Collection[str]) -> dict[Object, Call]:
    calls = trace.calls(*names)
    return {event.result: event for event in calls if isinstance(event.result, Object)}


def _trainings(program: Program, trace: Trace) -> Iterator[Training]:
    loaders = _results(trace, DATA_LOADERS)
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


def _takes(program: Program, begun: Site, node: ir.Node) -> bool:
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
    samplers = _results(trace, DISTRIBUTED_SAMPLERS)
    loaders = _results(trace, DATA_LOADERS)
    for loop in trace.calls("iterate"):
        loader = loaders.get(loop.receiver) if isinstance(loop.receiver, Object) else None
        given = None if loader is None else loader.argument(KEYWORD_ONLY, "sampler")
        sampled = isinstance(given, Object) and given in samplers
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
    """The innermost loop around ``loop`` that what is made at ``made`` outlives."""
    origins = set(made.frames())
    for path, node in reversed(loop.frames()):
        tree = program.tree(path)
        made_here = any(each == path and n is node for each, n in origins)
        if made_here or isinstance(node, (ir.FunctionDef, ir.ClassDef)):
            return None
        for around in tree.ancestors(node):
            if isinstance(around, ir.Function):
                break
            if isinstance(around, ir.For) and _covers(around.iterable, node):
                continue  # it is what this loop goes through
            if isinstance(around, (ir.For, ir.While)) and not _runs_once(around):
                inside = any(p == path and _covers(around, n) for p, n in origins)
                return None if inside else (path, around)
    return None


def _covers(whole: ir.Node, node: ir.Node) -> bool:
    return whole.start <= node.start and node.end <= whole.end


def _runs_once(loop: ir.For | ir.While) -> bool:
    counted = loop.iterable if isinstance(loop, ir.For) else None
    if not isinstance(counted, ir.Call) or not isinstance(counted.func, ir.Name):
        return False
    given = [argument.value for argument in counted.args]
    ends = [value.value for value in given if isinstance(value, ir.Constant)]
    return counted.func.id == "range" and len(given) == 1 and ends == [1]


# Data


def _is_whole(program: Program, trace: Trace, loader: Call) -> bool:
    """Whether a loader surely goes through all of a dataset that every process has."""
    arguments = loader.arguments
    if arguments.open or taint_of(*arguments.values()) & Taint.RANK:
        return False
    if _takes_sampler(loader):
        return False
    if any(mentions_ranks(words(program, path, node)) for path, node in loader.site.frames()[-1:]):
        return False
    dataset = loader.argument(0, "dataset")
    seeded = _is_divided_elsewhere(program, loader) and _seeds_itself(trace, dataset)
    return isinstance(dataset, Object) and is_fixed(program, dataset, seeded)


def _is_divided_elsewhere(program: Program, loader: Call) -> bool:
    """Whether another branch of the function has a distributed sampler for the same variable.

    What is drawn at random, and so may be a stand-in for data, is meant to be divided then.
    """
    tree, node = program.tree(loader.site.path), loader.site.node
    around = tree.nodes_of(tree.function(node) or tree.module)
    calls = [each for each in around if isinstance(each, ir.Call) and each.args]
    names = {name.rpartition(".")[2] for name in DISTRIBUTED_SAMPLERS}
    samplers = [call for call in calls if ir.last_name(call.func) in names]
    loaders = [node] if isinstance(node, ir.Call) and node.args else []
    given = [call.args[0].value for call in (*loaders, *samplers)]
    first, *others = [value.id for value in given if isinstance(value, ir.Name)] or [""]
    return first in others


def _seeds_itself(trace: Trace, dataset: object) -> bool:
    """Whether a dataset's constructor begins with a seed that all ranks share."""
    made = dataset.site if isinstance(dataset, Object) else None
    if made is None:
        return False
    frames = made.frames()
    inside = [s for s in trace.calls(*SEEDS) if s.site.frames()[: len(frames)] == frames]
    return bool(inside) and not any(
        taint_of(*s.arguments.values()) & Taint.RANK or s.site.guards[len(made.guards) :]
        for s in inside
    )


def _takes_sampler(loader: Call) -> bool:
    """Whether a loader has a sampler, or is handed what others decide on, even if it is none."""
    node = loader.site.node
    written = [a for a in node.args if not a.star] if isinstance(node, ir.Call) else []
    for place, argument in enumerate(written):
        named = argument.keyword in ("sampler", "batch_sampler")
        if named or (argument.keyword is None and place in (3, 4)):
            value = argument.value
            if not (isinstance(value, ir.Constant) and value.value is None):
                return True
    given = (loader.argument(3, "sampler"), loader.argument(4, "batch_sampler"))
    return any(v is not None and not (isinstance(v, Const) and v.value is None) for v in given)


def _divided(program: Program, training: Training) -> bool:
    """Whether ranks may take parts of a batch, or only some of them train on it."""
    forward, loop = training.forward, training.body
    ranked = taint_of(*forward.arguments.values()) & Taint.RANK
    alone = any(guard.divergent for guard in forward.site.guards)
    called = forward.site.frames()[len(loop.calls) + 1 :]
    functions = [(path, program.tree(path).function(node)) for path, node in called]
    around = [(loop.path, loop.node), *((p, each) for p, each in functions if each is not None)]
    return bool(ranked) or alone or any(divides(words(program, *place)) for place in around)


def over(loop: Call) -> Span:
    """What a loop goes through, in the code."""
    node = loop.site.node
    each = node.iterable if isinstance(node, ir.For) else node
    return Span(loop.site.path, each.start, each.end)


def _many_dimensions(trace: Trace) -> bool:
    """Whether some ranks may share data on purpose, as those of one tensor parallel group do."""
    if trace.calls(PARALLELIZE_MODULE):
        return True
    for mesh in trace.calls(*MESHES):
        shape = mesh.argument(1, "mesh_shape")
        if not isinstance(shape, Sequence) or shape.rest or len(shape.items) != 1:
            return True
    return bool(trace.calls(*DEVICE_MESHES))


def _common_seed(trace: Trace, time: int) -> Call | None:
    """The seed that all ranks share at a time, if they do."""
    seeds = [seed for seed in trace.calls(*SEEDS) if seed.time < time]
    if not seeds or any(guard.divergent for guard in seeds[-1].site.guards):
        return None
    given = seeds[-1].arguments.values()
    return seeds[-1] if given and not taint_of(*given) & Taint.RANK else None


# Samplers


def _shuffles(sampler: Call) -> bool:
    shuffle = sampler.argument(3, "shuffle")
    known = shuffle is None or (isinstance(shuffle, Const) and bool(shuffle.value))
    return known and not sampler.arguments.open


def _begins_in_each(program: Program, begun: Site) -> bool:
    """Whether a pass of the loop around, or a call of the function, always begins the loader."""
    if isinstance(begun.node, (ir.For, ir.Yield)):
        return True
    tree = program.tree(begun.path)
    around = tree.parent(tree.statement(begun.node))
    return isinstance(around, (ir.For, ir.While, ir.Function))


def _begins_again(program: Program, begun: Site) -> bool:
    """Whether a handler begins a loader whenever ``next`` finds that its batches are used up."""
    tree = program.tree(begun.path)
    handler = tree.parent(tree.statement(begun.node))
    if not isinstance(handler, ir.Handler) or handler.type is None:
        return False
    attempt = tree.parent(handler)
    assert isinstance(attempt, ir.Try)
    ended = ir.last_name(handler.type) == "StopIteration"
    tried = (node for statement in attempt.body for node in ir.walk(statement))
    return ended and any(_takes(program, begun, node) for node in tried)


def _is_told(trace: Trace, sampler: Call, loader: Call) -> bool:
    """Whether ``set_epoch`` is called on the sampler, or on something that may be it."""
    for call in trace.calls("set_epoch"):
        receiver = call.receiver
        if not isinstance(receiver, Object) or not class_names(receiver.cls):
            return True
        if receiver is sampler.result or receiver is loader.result:
            return True
    return False


def _adapted(trace: Trace, made: Call) -> bool:
    """Whether code that is not seen gets hold of a loader or sampler, and may change it."""
    result = made.result
    uses = [use for use in trace.uses if result in use.given]
    return any(not only_iterates(use.name) for use in uses if use.time > made.time)


# Names


def loader_name(program: Program, training: Training, epochs: Loop) -> str | None:
    """What the loop over epochs may call the loader, if it has a name there."""
    path, loop = epochs
    return name_in(program, training.loader.site, path, loop) or _iterated(
        program, training, epochs
    )


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
