from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from fsdplint.engine import ir
from fsdplint.engine.facts.feeding import Loop, SameOrder, Training, same_orders
from fsdplint.engine.places import name_in
from fsdplint.engine.program import Program
from fsdplint.engine.site import Site
from fsdplint.engine.tree import Tree
from fsdplint.engine.values import Const
from fsdplint.finding import Evidence, Fix, Safety, Severity, Span
from fsdplint.fixes.code import Code
from fsdplint.fixes.declined import Declined
from fsdplint.fixes.sampling import Epochs, set_epoch
from fsdplint.rule import Report, rule


@rule(
    "FSD802",
    summary="a distributed sampler shuffles every epoch alike",
    severity=Severity.WARNING,
    fix=Safety.SAFE,
    since="0.1.0",
    clause=None,
)
def epoch_not_set(program: Program) -> Iterator[Report]:
    for fact in same_orders(program):
        site = fact.sampler.site
        assert isinstance(site.node, ir.Call)
        path, loop = fact.epochs
        where = program.where(Site(path, loop), site)
        yield Report(
            program.span(site),
            f"`{program.text(site.path, site.node.func)}` shuffles alike in every pass of the loop "
            f"{where}: nothing calls its `set_epoch`",
            "shuffles by its seed and epoch 0",
            _evidence(fact),
            partial(_fix, program, fact),
        )


def _evidence(fact: SameOrder) -> tuple[Evidence, ...]:
    path, loop = fact.epochs
    head = loop.iterable if isinstance(loop, ir.For) else loop.test
    inner = fact.training.loop.site
    assert isinstance(inner.node, ir.For)
    over = inner.node.iterable
    return (
        Evidence(Span(path, head.start, head.end), "the epochs"),
        Evidence(Span(inner.path, over.start, over.end), "the same order each time"),
    )


def _fix(program: Program, fact: SameOrder) -> Fix | Declined:
    path, loop = fact.epochs
    name = name_in(program, fact.sampler.site, path, loop)
    if name is not None and isinstance(loop, ir.For):
        return set_epoch(Epochs(Code.of(program.tree(path)), loop, name))
    epochs = epochs_of(program, fact.training, fact.epochs)
    return epochs if isinstance(epochs, Declined) else set_epoch(epochs)


def epochs_of(program: Program, training: Training, epochs: Loop) -> Epochs | Declined:
    """The epoch loop with the expression that is the loader's sampler in it."""
    path, loop = epochs
    if not isinstance(loop, ir.For):
        return Declined("the loop around the epochs does not count them")
    name = name_in(program, training.loader.site, path, loop) or _iterated(
        program, training, epochs
    )
    if name is None:
        return Declined("the loop around the epochs has no name for the loader")
    return Epochs(Code.of(program.tree(path)), loop, f"{name}.sampler")


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
