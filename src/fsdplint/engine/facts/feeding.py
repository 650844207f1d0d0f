"""Data of training loops: the same on every rank, or in the same order in every epoch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fsdplint.engine import ir
from fsdplint.engine.facts.branches import on_every_path
from fsdplint.engine.facts.datasets import is_fixed, streamed_rows, words
from fsdplint.engine.facts.samplers import asks_for_epoch, distributed_samplers, drawn_from
from fsdplint.engine.facts.training_loops import Loop, Training, repeats, trainings
from fsdplint.engine.interpreter.events import Call, Shard, Trace
from fsdplint.engine.interpreter.site import Site
from fsdplint.engine.interpreter.values import (
    ClassValue,
    Const,
    Object,
    Sequence,
    Taint,
    Value,
    class_names,
    taint_of,
)
from fsdplint.engine.program import Program
from fsdplint.knowledge.collectives import PARALLELIZE_MODULE
from fsdplint.knowledge.data import (
    DISTRIBUTED_SAMPLERS,
    divides,
    mentions_ranks,
    only_iterates,
)
from fsdplint.knowledge.initialisation import SEEDS
from fsdplint.knowledge.launch import DEVICE_MESH, INIT_DEVICE_MESH
from fsdplint.knowledge.names import KEYWORD_ONLY


@dataclass(frozen=True, slots=True)
class SharedData:
    """A training loop whose loader gives every rank the same batches.

    Attributes:
        seed: the call that makes all ranks shuffle alike, None if nothing is shuffled.
        rows: the rows that a library loads on each rank and the loader only iterates over.
    """

    training: Training
    seed: Call | None
    rows: Object | None


@dataclass(frozen=True, slots=True)
class SameOrder:
    """Epochs that a sampler shuffles alike, since nothing calls its `set_epoch`.

    Attributes:
        sampler: where it is created.
        holder: the attributes that lead from the loader to it.
        epochs: the loop over them; None if a handler starts the next when one ends.
    """

    sampler: Site
    holder: str
    training: Training
    epochs: Loop | None


def shared_data(program: Program) -> Iterator[SharedData]:
    """Yield loaders that divide nothing, of data that is the same in every process."""
    return on_every_path(pair for trace in program.traces for pair in _shared(program, trace))


def _shared(program: Program, trace: Trace) -> Iterator[tuple[ir.Node, SharedData | None]]:
    several = _many_dimensions(trace)
    for training in trainings(program, trace):
        loader, seed = training.loader, None
        elsewhere = not isinstance(training.shard, Shard)  # and with it perhaps a mesh
        adapted = _adapted(trace, loader.result, loader.time)
        if several or elsewhere or adapted or not _is_whole(program, trace, loader):
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
    """Yield shuffling distributed samplers of several epochs without ``set_epoch``."""
    return on_every_path(pair for trace in program.traces for pair in _ordered(program, trace))


def _ordered(program: Program, trace: Trace) -> Iterator[tuple[ir.Node, SameOrder | None]]:
    samplers = {made: call for call, made in distributed_samplers(trace)}
    told, unknown = _told(trace)
    for sampler, call in samplers.items():
        asks = sampler in told or asks_for_epoch(sampler) or _adapted(trace, sampler, call.time)
        if asks and sampler.site is not None:
            yield sampler.site.node, None  # even if the loop that it feeds is not found
    for training in trainings(program, trace):
        loader = training.loader
        drawn, holder = drawn_from(loader)
        if drawn is None or drawn.site is None or drawn not in samplers:
            continue
        if not repeats(program, training) or not _shuffles(samplers[drawn]):
            continue
        if unknown or loader.result in told:
            yield drawn.site.node, None
        elif not _adapted(trace, loader.result, loader.time):
            yield drawn.site.node, SameOrder(drawn.site, holder, training, training.epochs)


# Data


def _is_whole(program: Program, trace: Trace, loader: Call) -> bool:
    """True if a loader surely iterates over all of a dataset that every process has."""
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

    Random data may be a placeholder for real data; the function then intends to divide it.
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
    """True if a dataset's constructor sets a seed that all ranks share."""
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
    """True if a loader has a sampler, or gets one from elsewhere, even if it is None."""
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
    """True if ranks may take parts of a batch, or only some of them train on it."""
    forward, loop = training.forward, training.body
    ranked = taint_of(*forward.arguments.values()) & Taint.RANK
    alone = any(guard.divergent for guard in forward.site.guards)
    called = forward.site.frames()[len(loop.calls) + 1 :]
    functions = [(path, program.tree(path).function(node)) for path, node in called]
    around = [(loop.path, loop.node), *((p, each) for p, each in functions if each is not None)]
    return bool(ranked) or alone or any(divides(words(program, *place)) for place in around)


def _many_dimensions(trace: Trace) -> bool:
    """True if some ranks may share data on purpose, as in one tensor-parallel group."""
    if trace.calls(PARALLELIZE_MODULE):
        return True
    for mesh in trace.calls(INIT_DEVICE_MESH):
        shape = mesh.argument(1, "mesh_shape")
        if not isinstance(shape, Sequence) or shape.rest or len(shape.items) != 1:
            return True
    return bool(trace.calls(DEVICE_MESH))


def _common_seed(trace: Trace, time: int) -> Call | None:
    """Return the seed that all ranks share at a time, if they do."""
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


def _told(trace: Trace) -> tuple[set[Object], bool]:
    """Return the receivers of ``set_epoch``, and whether one may be any sampler."""
    told: set[Object] = set()
    for call in trace.calls("set_epoch"):
        receiver = call.receiver
        cls = receiver.cls if isinstance(receiver, Object) else None
        opaque = not isinstance(cls, ClassValue) or cls.opaque()
        if not isinstance(receiver, Object) or (opaque and not class_names(cls)):
            return told, True
        told.add(receiver)
    return told, False


def _adapted(trace: Trace, made: Value, time: int) -> bool:
    """True if unknown code gets a loader or sampler and may change it."""
    uses = [use for use in trace.uses if made in use.given]
    return any(not only_iterates(use.name) for use in uses if use.time > time)
