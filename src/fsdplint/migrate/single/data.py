"""A part of the data for each rank."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from fsdplint.engine import ir
from fsdplint.engine.facts.datasets import is_iterable
from fsdplint.engine.facts.fix_places import common_frame
from fsdplint.engine.facts.samplers import distributed_samplers, drawn_from
from fsdplint.engine.facts.scripts import is_used_alone
from fsdplint.engine.facts.training_loops import Training, repeats, trainings
from fsdplint.engine.interpreter.events import Call, Shard
from fsdplint.engine.interpreter.values import Const, Object
from fsdplint.engine.program import Program
from fsdplint.finding import Edit
from fsdplint.fixes.arguments import add_argument, argument_of
from fsdplint.fixes.code import Code, Declined, NoFixError
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import dotted, fresh
from fsdplint.fixes.sampling import Asking, Epochs, epoch_edit, epochs_of
from fsdplint.knowledge.data import DATA, DATA_LOADERS
from fsdplint.knowledge.names import DISTRIBUTED
from fsdplint.migrate.single.batch_sizes import size_uses
from fsdplint.migrate.step import Change, Context, Found, Question, attempt, kept

_DIVIDE, _KEEP = "divide", "keep"
_RESEED, _SAME = "reseed", "leave"
_ORDER = "a `DistributedSampler` shuffles in another order than the loader did"
_LARGER = "a step uses one batch of each rank"
_UNDIVIDED = f"each rank goes through all of the data, and {_LARGER}"
_BY_HAND = "add a `DistributedSampler` by hand"
_SHARED = (
    "it also makes a loader that the model is not trained on, which each rank needs whole; make "
    "the two by separate calls by hand"
)
_IN_ITER = "have its `__iter__` give each rank its part by hand"
_SEED = "initial_seed() +"


def data(context: Context) -> Iterator[Found]:
    """Yield a change for each loader that a sharded model is trained on."""
    program = context.program
    every = [t for trace in program.traces for t in trainings(program, trace)]
    found = {t.loader.site.node: t for t in every if _paths(t) <= context.files}
    trained = {t.loader.site for t in every}
    made = [c.site for trace in program.traces for c in trace.calls(*DATA_LOADERS)]
    samplers = {made for t in program.traces for _, made in distributed_samplers(t)}
    for node, training in found.items():
        if any(site.node is node and site not in trained for site in made):
            code = Code.of(program.tree(training.loader.site.path))
            yield kept(code, node, _SHARED)
            continue
        sampler, _ = drawn_from(training.loader)
        if sampler is None:
            yield from _divided(context, training)
        elif sampler not in samplers:
            yield from _reseeded(context, training.shard.site.path, training.shard.site.node)
    if not found:
        shards = {s.call: s.site for trace in program.traces for s in trace.of(Shard)}
        ours = [(node, site) for node, site in shards.items() if site.path in context.files]
        for node, site in ours[:1]:
            yield from _reseeded(context, site.path, node)


def _paths(training: Training) -> set[str]:
    return {training.loader.site.path, training.shard.site.path}


def _reseeded(context: Context, path: str, shard: ir.Node) -> Iterator[Found]:
    """Yield a change if each rank has to draw other random numbers than the others."""
    code = Code.of(context.program.tree(path))
    if not any(_SEED in each.text for each in context.codes(_SEED)):
        yield from attempt(code, shard, partial(_seeded_by_rank, context, code, shard))


def _seeded_by_rank(context: Context, code: Code, shard: ir.Node) -> Change | None:
    span = code.span(shard)
    question = Question(
        span,
        "random-batches",
        "no loader was found that can be divided, so that each rank goes through all of the data: "
        "seed each rank with its own number, so that batches from `torch`'s random numbers differ, "
        "or leave the data as it is?",
        (_RESEED, _SAME),
    )
    if context.decided(question) == _SAME:
        return None
    imports = Imports(code, shard)
    torch, dist = imports.module("torch", "torch"), imports.module(DISTRIBUTED, "dist")
    statement = code.statement(shard)
    line = f"{torch}.manual_seed({torch}.{_SEED} {dist}.get_rank())"
    edit = code.insert_lines(
        code.after(statement), f"{code.indentation(statement)}{line}{code.newline}"
    )
    differs = f"{_UNDIVIDED}; random numbers after this differ from those of the program before"
    return Change(span, "seed each rank with its own number", (edit,), (imports,), differs)


@dataclass(frozen=True, slots=True)
class _Loader:
    """A call of a loader's class, and the imports for its changes."""

    code: Code
    event: Call
    call: ir.Call
    imports: Imports

    @property
    def unpacked(self) -> ir.Argument | None:
        return next((each for each in self.call.args if each.star == "**"), None)


def _divided(context: Context, training: Training) -> Iterator[Found]:
    site = training.loader.site
    code, call = Code.of(context.program.tree(site.path)), site.node
    assert isinstance(call, ir.Call)
    loader = _Loader(code, training.loader, call, Imports(code, call))
    yield from attempt(code, call, partial(_sampled, context, training, loader))


def _sampled(context: Context, training: Training, loader: _Loader) -> Change:
    streamed = training.loader.argument(0, "dataset")
    if isinstance(streamed, Object) and is_iterable(streamed):
        raise NoFixError(f"an `IterableDataset` takes no sampler; {_IN_ITER}")
    span = loader.code.span(loader.call)
    sized = training.loader.argument(1, "batch_size") is not None
    divides = sized and _divides(context, loader)
    alone = is_used_alone(context.program, loader.code.path)
    edits, shuffled = _edits(training, loader, divides, alone=alone)
    imports = {loader.code.path: loader.imports}
    for epochs in dict.fromkeys(_epochs(context, loader) if shuffled else ()):
        own = imports.setdefault(epochs.code.path, Imports(epochs.code, epochs.first))
        edits.append(epoch_edit(epochs, own))
    what = "divide the dataset between ranks with a `DistributedSampler`"
    differs = [_ORDER] * shuffled + [_LARGER] * (sized and not divides)
    return Change(span, what, tuple(edits), tuple(imports.values()), "; ".join(differs))


def _divides(context: Context, loader: _Loader) -> bool:
    """Return whether to divide the batch size, which is not the first choice if it may fail.

    Raises:
        NoFixError: it is to be divided, and other places use it as the size of a rank's batch.
    """
    given = argument_of(loader.call, 1, "batch_size")
    every = [*context.codes("")]
    code, use = next(size_uses(every, given.value), (None, None)) if given else (None, None)
    needed, choices = "", (_DIVIDE, _KEEP)
    if code is not None and use is not None:
        place = f"{Path(code.path).name}:{context.line(code.span(use))}"
        needed, choices = f", which `{code.short(use)}` in {place} needs", (_KEEP, _DIVIDE)
    text = (
        "is the batch size that of all ranks together, to be divided by their number, or that of "
        f"each rank{needed}?"
    )
    answer = context.decided(Question(loader.code.span(loader.call), "batch-size", text, choices))
    if answer == _DIVIDE and needed:
        raise NoFixError(f"a divided batch size is not the one{needed.removeprefix(', which')}")
    return answer == _DIVIDE


def _edits(
    training: Training, loader: _Loader, divides: bool, *, alone: bool
) -> tuple[list[Edit], bool]:
    """Return the edits, and whether the loader shuffles.

    Args:
        alone: scripts without a process group use the loader, too.
    """
    code, call = loader.code, loader.call
    if training.loader.arguments.open or any(each.star == "*" for each in call.args):
        raise NoFixError(f"the arguments of `{code.short(call.func)}` are not known; {_BY_HAND}")
    shuffle = training.loader.argument(2, "shuffle")
    shuffled = not (shuffle is None or (isinstance(shuffle, Const) and not shuffle.value))
    edits, dataset = _dataset(loader)
    sampler = loader.imports.name(DATA, "DistributedSampler")
    text = f"{sampler}({dataset}{'' if shuffled else ', shuffle=False'})"
    up = f"{loader.imports.module(DISTRIBUTED, 'dist')}.is_initialized()" if alone else ""
    text = f"{text} if {up} else None" if up else text
    unpacked: dict[str, str] = {}
    given = [each for each in call.args if each.keyword in ("shuffle", "sampler")]
    plain = [each for each in call.args if each.keyword is None and not each.star]
    given += plain[2:3]
    later = _unset(code, given)
    if later is not None:
        edits.append(code.edit(later.start, later.end, f"{sampler}({dataset})"))
    elif len(given) > 1 or len(plain) > 3:
        raise NoFixError(f"`{code.short(call)}` passes `shuffle` in an unusual way; {_BY_HAND}")
    if later is not None:
        pass
    elif given:
        kept = f"shuffle={_unless(code, given[0].value, up)}, " if up and shuffled else ""
        edits.append(code.edit(given[0].start, given[0].end, f"{kept}sampler={text}"))
    elif shuffle is not None:
        unpacked |= {"shuffle": f"not {up}" if up and shuffled else "False", "sampler": text}
    else:
        edits.append(add_argument(code, call, f"sampler={text}"))
    if divides:
        edits += _per_rank(loader, unpacked, up)
    if unpacked:
        edits.append(_repacked(loader, unpacked))
    return edits, shuffled


def _unless(code: Code, given: ir.Expr, up: str) -> str:
    """Return the text of an argument that holds unless there is a process group."""
    always = isinstance(given, ir.Constant)
    return f"not {up}" if always else f"({code.slice(given)}) and not {up}"


def _unset(code: Code, given: list[ir.Argument]) -> ir.Expr | None:
    """Return the None that a variable holds of which ``shuffle=sampler is None`` depends."""
    named = {each.keyword: each.value for each in given}
    sampler, shuffle = named.get("sampler"), named.get("shuffle")
    if not isinstance(sampler, ir.Name) or shuffle is None:
        return None
    values = code.assigned(sampler)
    alone = len(values) == 1 and isinstance(values[0], ir.Constant) and values[0].value is None
    asked = code.slice(shuffle).strip("()") == f"{sampler.id} is None"
    return values[0] if alone and asked else None


def _dataset(loader: _Loader) -> tuple[list[Edit], str]:
    """Return the name of the dataset, which may have to be assigned first."""
    code, call = loader.code, loader.call
    given = argument_of(call, 0, "dataset")
    if given is None:
        raise NoFixError(f"`{code.short(call)}` does not show its dataset; {_BY_HAND}")
    name = dotted(given.value)
    if name is not None:
        return [], name
    statement = code.statement(call)
    if not isinstance(statement, (ir.Assign, ir.Return)) or not code.alone(statement):
        raise NoFixError(f"`{code.short(statement)}` is no assignment; {_BY_HAND}")
    name, indent = fresh(code, call, "dataset"), code.indentation(statement)
    line = f"{indent}{name} = {code.slice(given.value)}{code.newline}"
    value = code.edit(given.value.start, given.value.end, name)
    return [code.insert_lines(code.extent(statement)[0], line), value], name


def _per_rank(loader: _Loader, unpacked: dict[str, str], up: str) -> list[Edit]:
    """Divide the batch size by the number of ranks, in place or in what is unpacked."""
    code = loader.code
    ranks = f"{loader.imports.module(DISTRIBUTED, 'dist')}.get_world_size()"
    ranks = f"({ranks} if {up} else 1)" if up else ranks
    given = argument_of(loader.call, 1, "batch_size")
    if given is not None:
        text, size = code.slice(given.value), given.value
        plain = dotted(size) is not None or isinstance(size, (ir.Constant, ir.Call, ir.Subscript))
        left = text if plain else f"({text})"
        return [code.edit(size.start, size.end, f"{left} // {ranks}")]
    assert loader.unpacked is not None
    name = code.slice(loader.unpacked.value)
    unpacked["batch_size"] = f'{name}["batch_size"] // {ranks}'
    return []


def _repacked(loader: _Loader, items: dict[str, str]) -> Edit:
    """Return the edit that overrides ``items`` of the arguments that the call unpacks."""
    given = loader.unpacked
    if given is None or dotted(given.value) is None:
        raise NoFixError(f"`{loader.code.short(loader.call)}` unpacks several values; {_BY_HAND}")
    text = loader.code.slice(given.value)
    pairs = "".join(f', "{key}": {value}' for key, value in items.items())
    return loader.code.edit(given.start, given.end, f"**{{**{text}{pairs}}}")


def _check_outlives(program: Program, training: Training) -> None:
    """Raise `NoFixError` if each epoch makes a loader, whose sampler would shuffle alike."""
    frame = common_frame(training.loader.site, training.loop.site)
    if frame is None:
        return
    path, made, begun = frame
    around = program.tree(path).ancestors(made)
    if any(isinstance(n, (ir.For, ir.While)) and n.start < begun.start < n.end for n in around):
        raise NoFixError(
            "each pass of a loop makes this loader, and its sampler would shuffle alike in all of "
            "them; make the loader before the loop by hand"
        )


def _epochs(context: Context, loader: _Loader) -> Iterator[Epochs]:
    """Yield where the epochs of each loop begin that trains on a loader."""
    program, node = context.program, loader.call
    begun = [call for trace in program.traces for call in trace.calls("iterate")]
    every = [t for trace in program.traces for t in trainings(program, trace)]
    for training in every:
        if training.loader.site.node is not node:
            continue
        if not repeats(program, training):
            _check_outlives(program, training)
            continue
        epochs = epochs_of(program, training)
        if isinstance(epochs, Declined):
            raise NoFixError(epochs.reason)
        there = [c.receiver for c in begun if c.site.node is training.loop.site.node]
        alone = all(isinstance(o, Object) and o.site and o.site.node is node for o in there)
        loop = training.loop.site
        in_each = epochs.first is program.tree(loop.path).statement(loop.node)
        yield epochs if alone or not in_each else replace(epochs, asking=Asking.CLASS)
