"""A part of the data for each rank."""

from __future__ import annotations

from collections.abc import Iterator

from fsdplint.engine import ir
from fsdplint.engine.facts.samplers import drawn_from
from fsdplint.engine.facts.training_loops import Training, loader_name, trainings
from fsdplint.engine.interpreter.values import Const
from fsdplint.engine.program import Program
from fsdplint.finding import Edit, Fix
from fsdplint.fixes.arguments import argument_of
from fsdplint.fixes.code import Code, Declined, NoFixError
from fsdplint.fixes.imports import Imports
from fsdplint.fixes.names import dotted
from fsdplint.fixes.sampling import Epochs, epochs_of, sample_by_rank
from fsdplint.knowledge.names import DISTRIBUTED
from fsdplint.migrate.step import Change, Context, Found, Kept, Question

_DIVIDE, _KEEP = "divide", "keep"
_ORDER = "a `DistributedSampler` shuffles in another order than the loader did"


def data(context: Context) -> Iterator[Found]:
    """Yield a change for each loader that a sharded model is trained on."""
    program = context.program
    found = {t.loader.site.node: t for trace in program.traces for t in trainings(program, trace)}
    for training in found.values():
        if drawn_from(training.loader)[0] is None:
            yield from _divided(context, training)


def _divided(context: Context, training: Training) -> Iterator[Found]:
    program, site = context.program, training.loader.site
    code, call = Code.of(program.tree(site.path)), site.node
    assert isinstance(call, ir.Call)
    span = program.span(site)
    batch = argument_of(call, 1, "batch_size")
    question = Question(
        span,
        "batch-size",
        f"is `{code.short(batch.value)}` the batch size of all ranks together, to be divided by "
        "their number, or that of each rank?"
        if batch is not None
        else "",
        (_DIVIDE, _KEEP),
    )
    answer = context.answer(question) if batch is not None else _KEEP
    if answer is None:
        yield question
        return
    shuffle = training.loader.argument(2, "shuffle")
    shuffled = not (shuffle is None or (isinstance(shuffle, Const) and not shuffle.value))
    try:
        fix = _sampled(program, training, shuffled)
        imports = Imports(code, call)
        edits = list(fix.edits)
        if batch is not None and answer == _DIVIDE:
            edits.append(_per_rank(code, imports, batch.value))
    except NoFixError as reason:
        yield Kept(span, f"`{code.short(call)}`", str(reason))
        return
    yield Change(span, fix.title, tuple(edits), (imports,), _ORDER if shuffled else "")


def _sampled(program: Program, training: Training, shuffled: bool) -> Fix:
    site = training.loader.site
    assert isinstance(site.node, ir.Call)
    epochs: Epochs | Declined | None = None
    if shuffled and training.epochs is not None:
        path, loop = training.epochs
        name = loader_name(program, training, training.epochs)
        epochs = epochs_of(Code.of(program.tree(path)), loop, name)
    if isinstance(epochs, Declined):
        raise NoFixError(epochs.reason)
    if epochs is not None and epochs.code.path != site.path:
        raise NoFixError(
            "the loader and the loop over epochs are in different files; add a "
            "`DistributedSampler` and call `set_epoch` by hand"
        )
    fix = sample_by_rank(Code.of(program.tree(site.path)), site.node, shuffled, epochs)
    if isinstance(fix, Declined):
        raise NoFixError(fix.reason)
    return fix


def _per_rank(code: Code, imports: Imports, size: ir.Expr) -> Edit:
    dist, text = imports.module(DISTRIBUTED, "dist"), code.slice(size)
    plain = dotted(size) is not None or isinstance(size, (ir.Constant, ir.Call, ir.Subscript))
    left = text if plain else f"({text})"
    return code.edit(size.start, size.end, f"{left} // {dist}.get_world_size()")
